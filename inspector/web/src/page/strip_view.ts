import { inkOn, rgb } from "../base/colours.ts";
import { make } from "../base/dom.ts";
import { cellText } from "../base/token_text.ts";
import { driftColour, driftText, NO_DATA } from "../inspect/codes.ts";
import type { StartedLane } from "../race/lane.ts";
import type { StripCell } from "./lesson_strip.ts";

/** Draw the strip of answer tokens with the drift of their V, before a step of a lane. */
export function drawStripCells(
  root: HTMLElement,
  cells: readonly StripCell[],
  lane: StartedLane,
  step: number,
): void {
  const prompt = lane.start.prompt.length;
  root.replaceChildren(...cells.map((cell) => cellNode(cell, prompt, lane, step)));
}

function cellNode(cell: StripCell, prompt: number, lane: StartedLane, step: number): HTMLElement {
  const { position, side, code, moved } = cell;
  const token = lane.token(position - prompt, step);
  const end = token && lane.stops.has(token.id);
  const text = token ? cellText(lane.pieces.get(token.id)) : "";
  const out = make("span", "ds-strip-cell", end ? "end" : text);
  if (side === "newest") out.classList.add("ds-strip-newest");
  if (code === null) out.classList.add("ds-strip-kept");
  else if (code !== NO_DATA) {
    const colour = driftColour(code);
    out.style.backgroundColor = rgb(colour);
    out.style.color = inkOn(colour);
  }
  if (moved) out.classList.add("ds-strip-moved");
  const drift = code === null ? "unchanged" : driftText(code, true); // lessons are recorded whole
  out.title = `answer token ${position - prompt + 1}: drift of V ${drift}`;
  return out;
}
