/** The film strip: a few moments of both lanes side by side, for a paper. */
import { duration, number, plural } from "../../base/format.ts";
import { visible } from "../../base/token_text.ts";
import { PAPER } from "../../figures/inks.ts";
import type { StartedLane } from "../lane.ts";
import type { Align, Frames, Store } from "../store.ts";
import { cellShapes, gridHeight, laneCells } from "./lane_cells.ts";
import { fitted, type Box, type Face, type Measure, type Shape } from "./shapes.ts";

/** A drawing with its size. */
export interface Strip {
  width: number;
  height: number;
  shapes: Shape[];
}

const PANEL = { width: 300, height: 204, gap: 18 };
const MARGIN = 16;
const TITLE = 24;
const LANE_TITLE = 26;
const CAPTION = 20;
const LEGEND = 26;
const DIFFER = "lanes differ";
const KEYS: readonly (readonly [state: string, text: string, name: string])[] = [
  ["mask", "", "mask"],
  ["new", "Ab", "committed in this step"],
  ["settled", "Ab", "committed earlier"],
  ["fixed", "Ab", "given"],
  ["end", "end", "end of text"],
  ["pad", "", "after the end"],
  ["settled", "Ab", DIFFER],
];
const KEY = { width: 34, gap: 6, after: 14 }; // gap: before its name; after: before the next one
const SMALL: Face = { size: 12 };

/**
 * Frames for a film strip: evenly spaced on the axis of alignment until the first lane is done, and
 * the end of the race, if it is later.
 */
export function tellingFrames(store: Store, mode: Align, count: number): Frames[] {
  const moving = store.series(mode).filter((_, i) => store.started[i].rows.length);
  const ends = moving.map((values) => values[values.length - 1]);
  const [first, last] = [Math.min(...ends), Math.max(...ends)];
  const even = first < last ? count - 1 : count;
  const values = Array.from({ length: even }, (_, i) => (first * (i + 1)) / even);
  if (first < last) values.push(last);
  return values.map((value) => store.frames(mode, { value, later: Infinity }));
}

/** What stands over a lane in a moment: its step, its time and its tokens. */
export function captionWords(store: Store, lane: StartedLane, frame: number): string {
  const time = store.timed ? ` · ${duration(lane.clock[frame])}` : "";
  const shown = number(lane.shown[frame]);
  return `step ${lane.before + frame}${time} · ${shown} of ${plural(lane.at.length, "token")}`;
}

/** From where a branch counts its time and its forwards, after `what`; empty if it is none. */
export function branchNote({ before }: StartedLane, what = ""): string {
  return before ? ` (${what}from step ${before + 1} on)` : "";
}

/** The film strip of some frames. */
export function filmStrip(store: Store, moments: readonly Frames[], measure: Measure): Strip {
  const lanes = store.started;
  const panels = moments.length * (PANEL.width + PANEL.gap) - PANEL.gap;
  const width = Math.max(panels, legendWidth(measure)) + 2 * MARGIN;
  const tallest = Math.max(0, ...lanes.map((lane) => gridHeight(lane.at.length, PANEL.height)));
  const laneHeight = LANE_TITLE + CAPTION + tallest + PANEL.gap;
  const height = MARGIN + TITLE + lanes.length * laneHeight + LEGEND + MARGIN;
  const bold = { size: 15, bold: true };
  const room = width - 2 * MARGIN;
  const title = fitted(visible(store.question ?? "A race"), room, bold, measure);
  const rows = lanes.map((lane, i) => {
    const y = MARGIN + TITLE + i * laneHeight;
    return laneRow(
      store,
      lane,
      moments,
      { x: MARGIN, y, width: room, height: laneHeight },
      measure,
    );
  });
  const shapes: Shape[] = [
    { x: 0, y: 0, width, height, fill: PAPER.paper },
    { ...bold, text: title, x: MARGIN, y: MARGIN + 12, fill: PAPER.mark },
    ...rows.flat(),
    ...legend(MARGIN, height - MARGIN - LEGEND + 6, measure),
  ];
  return { width, height, shapes };
}

function laneRow(
  store: Store,
  lane: StartedLane,
  moments: readonly Frames[],
  { x, y, width }: Box,
  measure: Measure,
): Shape[] {
  const bold = { size: 14, bold: true };
  const name = lane.name.toUpperCase();
  const note = store.timed ? branchNote(lane, "time ") : "";
  const room = width - 30 - measure(note, bold);
  const title = fitted(lane.start.title, room, bold, measure) + note;
  const other = lane.name === "a" ? "b" : "a";
  const panels = moments.flatMap((frames, i): Shape[] => {
    const frame = frames[lane.name];
    const left = x + i * (PANEL.width + PANEL.gap);
    const top = y + LANE_TITLE + CAPTION;
    const box = { x: left, y: top, width: PANEL.width, height: PANEL.height };
    const shown = { lane, frame, other: store.lanes[other], otherFrame: frames[other] };
    const words = fitted(captionWords(store, lane, frame), PANEL.width, SMALL, measure);
    return [
      { ...SMALL, text: words, x: left, y: top - 6, fill: PAPER.ink },
      ...laneCells(shown, box, measure),
    ];
  });
  return [
    { x, y, width: 20, height: 20, fill: PAPER[lane.name], round: 4 },
    { ...bold, text: name, x: x + 10, y: y + 15, fill: "#fff", centred: true },
    { ...bold, text: title, x: x + 28, y: y + 15, fill: PAPER.mark },
    ...panels,
  ];
}

/** The width of a look with its name. */
function keyWidth(name: string, measure: Measure): number {
  return KEY.width + KEY.gap + measure(name, SMALL);
}

function legendWidth(measure: Measure): number {
  const keys = KEYS.reduce((sum, [, , name]) => sum + keyWidth(name, measure), 0);
  return Math.ceil(keys + (KEYS.length - 1) * KEY.after);
}

/** What the looks of the cells mean. */
function legend(x: number, y: number, measure: Measure): Shape[] {
  let left = x;
  return KEYS.flatMap(([state, text, name]) => {
    const cell = { x: left, y, width: KEY.width, height: 18 };
    left += keyWidth(name, measure) + KEY.after;
    const at = { x: cell.x + KEY.width + KEY.gap, y: y + 13 };
    const words: Shape = { ...SMALL, ...at, text: name, fill: PAPER.ink };
    return [...cellShapes(state, text, cell, name === DIFFER, measure), words];
  });
}
