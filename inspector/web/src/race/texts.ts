import { make } from "../base/dom.ts";
import { cellText, visible, type Piece } from "../base/pieces.ts";
import type { Lane } from "./lane.ts";
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
    nodes.push(document.createTextNode(nodes.length ? part : part.trimStart()));
  }
  flush();
  target.replaceChildren(...nodes);
}

function promptText(piece: Piece | undefined): string {
  if (piece === undefined) return "?";
  return visible(typeof piece === "string" ? piece : cellText(piece));
}

/** Draw the prompt's tokens, with control characters written out. */
export function drawPrompt(target: HTMLElement, store: Store): void {
  const lane = store.started.at(0);
  if (!lane) return;
  const cells = lane.start.prompt.map((id) => {
    const cell = make("span", "ds-fixed", promptText(lane.pieces.get(id)));
    cell.title = `id ${id}`;
    return cell;
  });
  target.replaceChildren(...cells);
}
