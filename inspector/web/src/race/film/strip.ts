/** The film strip: a few moments of both lanes side by side, for a paper. */
import { duration, number, plural } from "../../base/format.ts";
import { visible } from "../../base/pieces.ts";
import { PAPER } from "../../figures/inks.ts";
import type { StartedLane } from "../lane.ts";
import type { Align, Frames, Store } from "../store.ts";
import { cellShapes, gridHeight, laneCells } from "./lane_cells.ts";
import { fitted, type Box, type Measure, type Shape } from "./shapes.ts";

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
const KEYS: readonly (readonly [state: string, text: string, name: string])[] = [
  ["mask", "", "mask"],
  ["new", "Ab", "new in this step"],
  ["settled", "Ab", "settled"],
  ["fixed", "Ab", "given"],
  ["end", "end", "end of text"],
  ["pad", "", "after the end"],
];

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

/** The film strip of some frames. */
export function filmStrip(store: Store, moments: readonly Frames[], measure: Measure): Strip {
  const lanes = store.started;
  const width = Math.max(moments.length, 2) * (PANEL.width + PANEL.gap) - PANEL.gap + 2 * MARGIN;
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
  const title = fitted(visible(lane.start.title), width - 30, bold, measure);
  const other = lane.name === "a" ? "b" : "a";
  const panels = moments.flatMap((frames, i): Shape[] => {
    const frame = frames[lane.name];
    const left = x + i * (PANEL.width + PANEL.gap);
    const top = y + LANE_TITLE + CAPTION;
    const box = { x: left, y: top, width: PANEL.width, height: PANEL.height };
    const shown = { lane, frame, other: store.lanes[other], otherFrame: frames[other] };
    const small = { size: 12 };
    const words = fitted(captionWords(store, lane, frame), PANEL.width, small, measure);
    return [
      { ...small, text: words, x: left, y: top - 6, fill: PAPER.ink },
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

/** What the looks of the cells mean. */
function legend(x: number, y: number, measure: Measure): Shape[] {
  const face = { size: 12 };
  const keys = [...KEYS.map((key) => [...key, false] as const)];
  let left = x;
  return [...keys, ["settled", "Ab", "lanes differ", true] as const].flatMap(
    ([state, text, name, differs]) => {
      const cell = { x: left, y, width: 34, height: 18 };
      left += 34 + 6 + measure(name, face) + 14;
      const words: Shape = { ...face, text: name, x: cell.x + 40, y: y + 13, fill: PAPER.ink };
      return [...cellShapes(state, text, cell, differs, measure), words];
    },
  );
}
