import { Announcer, taskNews } from "../base/announcer.ts";
import { copyOnPress } from "../base/clipboard.ts";
import type { Component } from "../base/component.ts";
import { csv, save } from "../base/download.ts";
import { make, onRecolour, part, reachable, write } from "../base/dom.ts";
import { Focus, redrawInPlace, taskKeys } from "../base/focus.ts";
import { readJson } from "../base/json.ts";
import { browserStorage, keep } from "../base/storage.ts";
import { Figure } from "../figures/figure.ts";
import { frontFigure } from "./figures.ts";
import { points, type Advice, type SearchProgress } from "./messages.ts";
import { settingRows, settingTable } from "./table.ts";
import { chosenWords, requestWords, searchedWords, stateWords } from "./words.ts";

const STORAGE_KEY = "driftscope-search"; // of the session: the search that is shown

/** The results of a search for settings: progress, the Pareto front, a table, and the chosen setting. */
export class AdvicePart {
  private readonly root: HTMLElement;
  private readonly focus: Focus;
  private readonly announcer: Announcer;
  private progress: SearchProgress | null = null;
  private advice: Advice | null = null;
  private readonly figure = new Figure("advice-front", () => ({
    run: this.progress?.search ?? "",
  }));

  constructor(private readonly component: Component) {
    this.root = part(component.element, "[data-advice]");
    this.focus = new Focus(this.root, taskKeys("advice"));
    this.announcer = new Announcer(this.find("spoken"), () =>
      taskNews(this.progress?.state ?? "", () => this.find("state").textContent),
    );
    this.find("front").append(this.figure.root);
    this.find("race-chosen").addEventListener("click", () => {
      if (this.advice?.chosen) this.race(this.advice.chosen.name);
    });
    for (const [name, act] of Object.entries(this.files()))
      part(this.root, `[data-advice-save="${name}"]`).addEventListener("click", act);
    for (const what of ["link", "preset"] as const)
      copyOnPress(part(this.root, `[data-advice-copy="${what}"]`), () => this.chosenText(what));
    onRecolour(() => this.draw());
    new ResizeObserver(() => {
      this.draw();
      reachable(this.find("table"));
    }).observe(this.root);
    component.watch("value", () => this.take());
    this.take();
  }

  private find<E extends HTMLElement = HTMLElement>(name: string): E {
    return part<E>(this.root, `[data-advice-${name}]`);
  }

  private take(): void {
    const progress = readJson(this.component.props.value) as SearchProgress | null;
    if (!progress) return;
    if (progress.search && progress.search !== this.progress?.search) this.advice = null;
    this.progress = progress;
    if (progress.search) keep(browserStorage("sessionStorage"), STORAGE_KEY, progress.search);
    this.showProgress(progress);
    if (!progress.advice) return;
    this.advice = progress.advice;
    this.showAdvice(progress.advice);
  }

  private showProgress(progress: SearchProgress): void {
    this.root.dataset.state = progress.state;
    this.root.dataset.runs = String(progress.runs);
    write(this.find("state"), stateWords(progress));
    this.announcer.announce();
    const bar = this.find<HTMLProgressElement>("bar");
    bar.hidden = !progress.total || progress.state !== "running";
    bar.max = Math.max(progress.total, 1);
    bar.value = progress.done;
  }

  private showAdvice(advice: Advice): void {
    const rows = points(advice);
    this.find("results").hidden = !rows.length;
    this.find("chosen").hidden = !rows.length;
    write(this.find("chosen-words"), chosenWords(advice));
    this.find("chosen-keys").hidden = !advice.chosen;
    const box = this.find("table");
    redrawInPlace(box, "data-advice-race", () => {
      box.replaceChildren(settingTable(rows, (name) => this.race(name)));
    });
    reachable(box);
    this.focus.check();
    this.list("searched", [requestWords(advice), ...advice.caches.map(searchedWords)]);
    this.list("untested", advice.not_tested);
    this.draw();
  }

  private list(name: string, texts: readonly string[]): void {
    this.find(name).replaceChildren(...texts.map((text) => make("li", "", text)));
  }

  private draw(): void {
    if (!this.advice || !this.root.clientWidth) return;
    const spec = frontFigure(this.advice);
    this.figure.root.hidden = !spec;
    if (spec) this.figure.show(spec);
  }

  private race(name: string): void {
    this.focus.toRaceOnceHidden();
    this.component.trigger("race", { search: this.progress?.search, name });
  }

  /** The link of the chosen setting's race, or its preset; empty without one. */
  private chosenText(what: "link" | "preset"): string {
    const chosen = this.advice?.chosen;
    if (!chosen) return "";
    if (what === "preset") return JSON.stringify(chosen.preset, null, 1);
    return `${location.origin}${location.pathname}?${chosen.query}`;
  }

  /** What each button of the files saves. */
  private files(): Record<string, () => void> {
    const name = (what: string): string =>
      `driftscope-advice-${(this.progress?.search ?? "").slice(0, 8)}-${what}`;
    const json = (what: string, data: unknown): void =>
      save(`${name(what)}.json`, new Blob([JSON.stringify(data)], { type: "application/json" }));
    return {
      card: () => json("run-card", this.advice?.chosen?.card),
      advice: () => json("all", this.advice),
      settings: () => {
        const rows = settingRows(this.advice ? points(this.advice) : []);
        save(`${name("settings")}.csv`, new Blob([csv(rows)], { type: "text/csv" }));
      },
    };
  }
}

/** Start the advisor's results in their component. */
export function advice(component: Component): AdvicePart {
  return new AdvicePart(component);
}
