import { make } from "../base/dom.ts";
import { number } from "../base/format.ts";
import { cellText, visible, visibleLines, type Piece } from "../base/token_text.ts";
import { stripTitle } from "./images.ts";
import type { Lane, StartedLane } from "./lane.ts";
import type { Store } from "./store.ts";

const WIDEST_GAP = 12; // characters that stand for masks in a row

/** Draw the answer of a lane in a frame; masks in a row are drawn as a gap. */
export function drawAnswer(target: HTMLElement, lane: Lane, frame: number): void {
  const nodes: Node[] = [];
  let hidden = 0;
  const flush = (): void => {
    if (hidden) nodes.push(make("span", "ds-gap", "▒".repeat(Math.min(hidden, WIDEST_GAP))));
    hidden = 0;
  };
  for (const part of lane.start ? lane.text(frame) : []) {
    if (part === null) {
      hidden++;
      continue;
    }
    flush();
    const text = visibleLines(nodes.length ? part : part.trimStart());
    nodes.push(document.createTextNode(text));
  }
  flush();
  target.replaceChildren(...nodes);
}

function promptText(piece: Piece | undefined): string {
  if (piece === undefined) return "?";
  return visible(typeof piece === "string" ? piece : cellText(piece));
}

const HEAD = 256; // tokens that the start of a long prompt shows
const TAIL = 128; // and its end
const FEW = 64; // so many between them are not folded

/** How many tokens of a prompt are hidden between its start and its end. */
export function hiddenTokens(length: number): number {
  const hidden = length - HEAD - TAIL;
  return hidden > FEW ? hidden : 0;
}

/** The prompt's tokens with control characters written out; the middle of a long one is folded. */
export class Prompt {
  private drawn: StartedLane | null = null;

  constructor(private readonly box: HTMLElement) {}

  /** Draw the prompt unless it is there already. */
  draw(store: Store): void {
    const lane = store.started.at(0);
    if (!lane || lane === this.drawn) return;
    this.drawn = lane;
    const parts = promptParts(lane);
    const hidden = hiddenTokens(parts.length);
    const all = promptCells(lane, parts.slice(0, hidden ? HEAD : parts.length));
    if (!hidden) return this.box.replaceChildren(...all);
    const more = make("button", "ds-play ds-prompt-more", `Show ${number(hidden)} more tokens`);
    more.type = "button";
    more.addEventListener("click", () => {
      this.box.focus();
      more.replaceWith(...promptCells(lane, parts.slice(HEAD, HEAD + hidden)));
    });
    this.box.replaceChildren(...all, more, ...promptCells(lane, parts.slice(HEAD + hidden)));
  }
}

/** The ids of a prompt, with the line of an image in place of its rows. */
export function promptParts(lane: Pick<StartedLane, "start">): (number | string)[] {
  const { prompt, images = [] } = lane.start;
  const parts: (number | string)[] = [];
  let at = 0;
  for (const [index, image] of images.entries()) {
    parts.push(...prompt.slice(at, image.first), stripTitle(image, index));
    at = image.first + image.rows;
  }
  parts.push(...prompt.slice(at));
  return parts;
}

function promptCells(lane: StartedLane, parts: readonly (number | string)[]): HTMLElement[] {
  return parts.map((id) => {
    if (typeof id === "string") return make("span", "ds-prompt-image", id);
    const cell = make("span", "ds-fixed", promptText(lane.pieces.get(id)));
    cell.title = `id ${id}`;
    return cell;
  });
}
