import { make, part, write } from "../base/dom.ts";
import { visibleLines } from "../base/token_text.ts";
import { drawWait } from "./progress.ts";
import { branchWords, chips, headline, recordingNews, STATES } from "./report.ts";
import type { Frames, Store } from "./store.ts";

/** What the head of a race says beyond what the store knows. */
export interface HeadNews {
  /** Run was pressed, and the server has not answered yet. */
  queued: boolean;
  /** The question of the settings; null if it is not known. */
  question: string | null;
}

const STANDING: Record<string, string | undefined> = {
  example: "the recorded example",
  imported: "the imported run",
};

/** The state of a race in a few words; after a refusal, what the lanes still show. */
export function stateLabel(store: Store, queued: boolean): string {
  const state = queued ? "queued" : store.state;
  if (!store.refusal || queued) return STATES[state] ?? state;
  if (store.live)
    return "Not started; the earlier run " + (state === "paused" ? "is paused" : "goes on");
  if (!store.started.length) return "Not started";
  return "Not started; below: " + (STANDING[state] ?? "the last race");
}

/** The state of a race in words, with where it was measured. */
export function stateWords(store: Store, queued: boolean): string {
  const label = stateLabel(store, queued);
  const where = store.started.at(0)?.start.environment;
  const told = !queued && store.state === "recording" && recordingNews(store);
  if (told) return label + " · " + told;
  const finished = ["example", "done"].includes(store.state) && store.timed && !store.refusal;
  return finished && where ? label + " · measured on " + where : label;
}

/**
 * The message under the state: the server's, else that of a lane that failed. Lane A of a branch is
 * that of its parent.
 */
export function noteWords(store: Store): string {
  if (store.state === "recording") return "";
  const ran = store.started.filter((lane) => lane.name === "b" || !store.parent);
  const ends = ran.map((lane) => lane.end?.message);
  return visibleLines(store.message || ends.find(Boolean) || "");
}

/** A sentence if the lanes show another question than the settings; empty otherwise. */
export function otherWords(store: Store, question: string | null): string {
  const { question: shown } = store;
  if (!question || !shown || shown === question) return "";
  return "The lanes below show another problem: " + visibleLines(shown);
}

/** Draw the head of a race. */
export function drawHead(root: HTMLElement, store: Store, frames: Frames, news: HeadNews): void {
  const find = <E extends HTMLElement>(name: string): E => part<E>(root, "[data-" + name + "]");
  root.dataset.state = store.refusal ? "refused" : store.state;
  root.dataset.run = store.run ?? "";
  root.dataset.held = store.held ? "yes" : "no";
  root.classList.toggle("ds-stale", store.pending);
  write(find("state"), stateWords(store, news.queued));
  write(find("headline"), headline(store, frames));
  drawWait({ box: find("fetch"), bar: find("fetch-bar"), words: find("fetch-words") }, store.wait);
  drawChips(find("chips"), chips(store));
  const note = noteWords(store);
  find("note").hidden = !note;
  write(find("note"), note);
  find("parent").hidden = !store.parent;
  find("branch-words").textContent = branchWords(store);
  find<HTMLButtonElement>("back").disabled = store.busy;
  const other = otherWords(store, news.question);
  find("other").hidden = !other;
  write(find("other"), other);
}

function drawChips(list: HTMLElement, texts: readonly string[]): void {
  const shown = Array.from(list.children, (item) => item.textContent);
  if (shown.join("\n") === texts.join("\n")) return;
  list.replaceChildren(...texts.map((text) => make("li", "", text)));
}
