import { copyOnPress } from "../base/clipboard.ts";
import { part, write } from "../base/dom.ts";
import type { Inspector } from "../inspect/inspector.ts";
import { canRecord } from "../inspect/inspector_options.ts";
import {
  cursorKey,
  fits,
  missing,
  missingWords,
  readLink,
  RECORD_KEYS,
  refusedWords,
  showKey,
  viewLink,
  worthSaying,
  type Missing,
} from "./link.ts";
import type { Store } from "./store.ts";

function keyWords(left: Missing): string {
  if (left.press === "record") return RECORD_KEYS[left.level] ?? "";
  return left.press === "run" ? "Run" : "Branch";
}

/** Brings the page to what its link names, says what to press for that, and offers a new link. */
export class LinkedView {
  private readonly wanted = readLink(location.search);
  private readonly field: HTMLInputElement;
  /** The lanes that were brought to the wanted place, and the cursor there. */
  private lanes: Store["lanes"] | null = null;
  private key = "";
  private left: Missing | null = null;
  /** Whether the run of the link was on the page: its note does not come back with another run. */
  private seen = false;
  /** The settings cannot be run. */
  private refused = false;
  /** The key Run whose state is followed. */
  private watched: HTMLElement | null = null;

  constructor(
    private readonly root: HTMLElement,
    private readonly inspector: Inspector,
  ) {
    this.field = part(inspector.root, "[data-view-link-field]");
    copyOnPress(part(inspector.root, "[data-view-link-copy]"), this.field);
    part(root, "[data-linked-key]").addEventListener("click", () => this.press());
    const { cursor, look, show } = this.wanted;
    if (cursor || look) inspector.seen = true;
    if (look) inspector.open(look);
    if (show.length) inspector.choose(show);
    const watch = new MutationObserver(() => {
      this.follow();
      this.drawNote();
      this.drawLink();
    });
    document.addEventListener("driftscope-planned", ({ detail: runnable }) => {
      this.refused = !runnable;
      this.drawNote();
    });
    watch.observe(inspector.root, { attributeFilter: ["data-lane", "data-view"] });
  }

  private select(name: "align" | "colour"): HTMLSelectElement {
    return part(this.root, "[data-" + name + "]");
  }

  private now(): string {
    return cursorKey(this.inspector.cursor.pinned);
  }

  private missing(): Missing | null {
    const { store, frames, cursor } = this.inspector;
    const lane = this.wanted.cursor?.lane ?? cursor.pinned.lane;
    const { link, state } = store;
    return missing(this.wanted, { link, state, level: frames[lane]?.level });
  }

  /** Bring each run to the wanted place, until the reader moves the cursor elsewhere. */
  private follow(): void {
    const { store, frames } = this.inspector;
    const wanted = this.wanted.cursor;
    const lane = wanted?.lane ?? this.inspector.cursor.pinned.lane;
    if (store.busy || !frames[lane] || this.key === "left") return;
    if (this.lanes === store.lanes) {
      if (this.now() !== this.key) this.key = "left";
      return;
    }
    const left = this.missing()?.press;
    if (left === "run" || left === "branch") return;
    this.lanes = store.lanes;
    this.restore();
    this.key = this.now();
  }

  private restore(): void {
    const { store, frames, cursor } = this.inspector;
    const { cursor: wanted, look, align, colour } = this.wanted;
    for (const [name, value] of [["align", align] as const, ["colour", colour] as const]) {
      const option = [...this.select(name).options].find((one) => one.value === value);
      if (!option || option.disabled) continue;
      this.select(name).value = value;
      this.select(name).dispatchEvent(new Event("change"));
    }
    if (wanted && fits(wanted, store.lanes[wanted.lane], frames[wanted.lane]))
      cursor.move(wanted, wanted.position !== null);
    const opening = store.state === "example" && window.scrollY === 0;
    if (opening && (wanted ?? look)) this.inspector.root.scrollIntoView({ block: "start" });
  }

  /** Say what is left to press. */
  private drawNote(): void {
    const { store, name } = this.inspector;
    const left = store.busy || !store.started.length ? null : this.missing();
    const unrun = left?.press === "run" || left?.press === "branch";
    this.seen ||= !store.busy && store.started.length > 0 && !unrun;
    const recordable = name === this.wanted.look && canRecord(this.inspector);
    const standing = { invalid: store.invalidLink, recordable, seen: this.seen };
    this.left = left && worthSaying(left, standing) ? left : null;
    part(this.root, "[data-linked]").hidden = !this.left;
    if (!this.left) return;
    const before = { a: store.lanes.a.before, b: store.lanes.b.before };
    const vain = this.left.press === "run" && this.refused;
    const words = vain ? refusedWords(this.wanted) : missingWords(this.wanted, this.left, before);
    write(part(this.root, "[data-linked-words]"), words);
    write(part(this.root, "[data-linked-key]"), keyWords(this.left));
    part(this.root, "[data-linked-key]").hidden = vain;
    this.drawKey();
  }

  /** Disable the key of the note while Run is, if it stands for Run. */
  private drawKey(): void {
    const run = document.querySelector<HTMLButtonElement>("#ds-run");
    const key = part<HTMLButtonElement>(this.root, "[data-linked-key]");
    key.disabled = this.left?.press === "run" && Boolean(run?.disabled);
    if (!run || run === this.watched) return;
    this.watched = run;
    new MutationObserver(() => this.drawKey()).observe(run, { attributeFilter: ["disabled"] });
  }

  private press(): void {
    const { left } = this;
    if (left?.press === "run") document.querySelector<HTMLElement>("#ds-run")?.click();
    if (left?.press === "record") part(this.root, `[data-record="${left.level}"]`).click();
    if (left?.press !== "branch") return;
    this.inspector.onBranch({ run: this.inspector.store.run, ...left.branch });
  }

  private drawLink(): void {
    const { store, name, choices } = this.inspector;
    part(this.inspector.root, "[data-view-link]").hidden = !store.link;
    if (!store.link) return;
    const align = this.select("align").value;
    const colour = this.select("colour").value;
    const look = {
      cursor: this.now(),
      look: name,
      show: showKey(choices),
      align: align === (store.timed ? "time" : "step") ? "" : align,
      colour: colour === "state" ? "" : colour,
    };
    const page = location.origin + location.pathname;
    const link = viewLink(page, store.link, look);
    if (this.field.value !== link) this.field.value = link;
  }
}
