/** Blocks of an answer. Those of a long answer are folded to a line while nothing happens there. */
import { make, write } from "../base/dom.ts";
import { plural } from "../base/format.ts";
import { joined, visible } from "../base/token_text.ts";
import type { Lane } from "./lane.ts";

/** Answers with more tokens than this fold their blocks. */
export const LONG_ANSWER = 256;

/** The tokens of a block in a frame, counted. */
export interface BlockCounts {
  /** The index of the block's first token. */
  from: number;
  places: number;
  /** Tokens that are not masked. */
  revealed: number;
  /** Tokens that the last step revealed. */
  fresh: number;
  /** Tokens that differ from those of the other lane. */
  differing: number;
  /** Whether the next step works on the block. */
  active: boolean;
}

/** Whether nothing happens in a block: it is settled or untouched. */
export function atRest({ places, revealed, fresh, active }: BlockCounts): boolean {
  return !active && !fresh && (revealed === 0 || revealed === places);
}

/** A block at rest in a line: its masks, or its text up to the end of the answer at `end`. */
export function restWords(lane: Lane, counts: BlockCounts, end: number): string {
  const { from, places, revealed, differing } = counts;
  if (revealed === 0) return plural(places, "mask");
  const apart = differing ? ` · ${differing} ≠` : "";
  if (end <= from) return plural(places, "token") + " after the end of the text" + apart;
  const own = lane.at.slice(from, Math.min(from + places, end));
  const pieces = own.map((token) => (token ? lane.pieces.get(token.id) : undefined));
  return visible(joined(pieces)).trim() + apart;
}

/** A block on the page: its name, its cells and, in a long answer, the line it folds to. */
export class Block {
  readonly root = make("div", "ds-block");
  /** Tokens of the block that are selected or pinned, which keep it open. */
  private held = 0;
  /** Whether the reader has opened (true) or folded the block. */
  private wish: boolean | null = null;
  private rest = false;
  private folding = true;
  /** What the line was written from. */
  private key = "";
  private readonly line: HTMLElement | null;

  /** `index` counts from 0; `long`: the block belongs to a long answer. */
  constructor(index: number, long: boolean, cells: readonly HTMLElement[]) {
    const name = make(long ? "button" : "span", "ds-block-name", `block ${index + 1}`);
    this.line = long ? make("span", "ds-block-line") : null;
    if (name instanceof HTMLButtonElement && this.line) {
      name.type = "button";
      name.tabIndex = -1; // the keyboard opens a block by moving into it
      name.append(this.line);
      name.addEventListener("click", () => this.toggle());
    }
    this.root.append(name, ...cells);
  }

  private get folded(): boolean {
    if (!this.line || this.held > 0) return false;
    return this.wish === null ? this.folding && this.rest : !this.wish;
  }

  private toggle(): void {
    this.wish = this.folded;
    this.fold();
  }

  /** Keep the block open while one of its tokens is selected or pinned. */
  hold(held: boolean): void {
    this.held += held ? 1 : -1;
    this.fold();
  }

  /** Draw the block; `folding`: fold it while it is at rest. */
  draw(lane: Lane, counts: BlockCounts, end: number, folding: boolean): void {
    this.root.classList.toggle("ds-active", counts.active);
    if (!this.line) return;
    if (folding !== this.folding) this.wish = null;
    this.folding = folding;
    this.rest = atRest(counts);
    this.fold();
    const { revealed, differing, from, places } = counts;
    const key = [this.rest, revealed, differing, Math.min(end, from + places)].join();
    if (key === this.key) return;
    this.key = key;
    write(this.line, this.rest ? restWords(lane, counts, end) : "");
  }

  private fold(): void {
    const { folded } = this;
    if (!this.line) return;
    this.root.classList.toggle("ds-folded", folded);
    this.root.firstElementChild?.setAttribute("aria-expanded", String(!folded));
  }
}
