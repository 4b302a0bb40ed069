/** One picture of the video of a race: both lanes with title, numbers, tokens and text, a clock. */
import { duration, plural } from "../../base/format.ts";
import { visible } from "../../base/token_text.ts";
import { PAPER } from "../../figures/inks.ts";
import { wrapped } from "../../figures/svg.ts";
import type { StartedLane } from "../lane.ts";
import { headline } from "../report.ts";
import type { Frames, Store } from "../store.ts";
import { gridHeight, laneCells } from "./lane_cells.ts";
import { fitted, type Box, type Face, type Measure, type Shape, type TextShape } from "./shapes.ts";
import { branchNote } from "./strip.ts";

/** The size of the video in pixels. */
export const SIZE = { width: 1280, height: 720 };

const MARGIN = 28;
const HEAD = 92; // height of the clock and the headline
const LANE_HEAD = 66;
const LINES = 4; // of the answer's text
const LINE: Face = { size: 17 };
const PITCH = 23;

/** What the clock shows: the engine's time, or the step if the race was not timed. */
export function clockWords(store: Store, frames: Frames): string {
  const steps = Math.max(0, ...store.started.map((lane) => lane.before + frames[lane.name]));
  if (!store.timed) return `step ${steps}`;
  return duration(Math.max(0, ...store.started.map((lane) => lane.clock[frames[lane.name]])));
}

/** The shapes of a picture. */
export function videoFrame(store: Store, frames: Frames, measure: Measure): Shape[] {
  const ground: Shape = { x: 0, y: 0, ...SIZE, fill: PAPER.paper };
  const lanes = store.started;
  const width = (SIZE.width - MARGIN * (lanes.length + 1)) / Math.max(lanes.length, 1);
  const shapes = lanes.map((lane, i) => {
    const x = MARGIN + i * (width + MARGIN);
    const box = { x, y: HEAD, width, height: SIZE.height - HEAD - MARGIN };
    return laneShapes(store, lane, frames, box, measure);
  });
  return [ground, ...headShapes(store, frames, measure), ...shapes.flat()];
}

function headShapes(store: Store, frames: Frames, measure: Measure): Shape[] {
  const clock = clockWords(store, frames);
  const over = store.started.every((lane) => frames[lane.name] === lane.rows.length);
  const room = SIZE.width - 2 * MARGIN;
  const words = over ? headline(store, frames) : (store.question ?? "");
  const [big, small] = [{ size: 40, bold: true }, { size: 20 }];
  const left = measure(clock, big) + MARGIN;
  const told = fitted(visible(words), room - left, small, measure);
  return [
    { ...big, text: clock, x: MARGIN, y: 60, fill: PAPER.mark },
    { ...small, text: told, x: MARGIN + left, y: 56, fill: PAPER.ink },
  ];
}

function laneShapes(
  store: Store,
  lane: StartedLane,
  frames: Frames,
  box: Box,
  measure: Measure,
): Shape[] {
  const frame = frames[lane.name];
  const other = lane.name === "a" ? "b" : "a";
  const shown = { lane, frame, other: store.lanes[other], otherFrame: frames[other] };
  const text = textLines(lane, frame, box.width, measure);
  const below = LINES * PITCH + 12;
  const cells = { ...box, y: box.y + LANE_HEAD, height: box.height - LANE_HEAD - below };
  const top = cells.y + gridHeight(lane.at.length, cells.height) + PITCH + 8;
  return [
    ...laneHead(store, lane, frame, box, measure),
    ...laneCells(shown, cells, measure),
    ...text.map((line, i): TextShape => {
      return { ...LINE, text: line, x: box.x, y: top + i * PITCH, fill: PAPER.mark };
    }),
  ];
}

function laneHead(
  store: Store,
  lane: StartedLane,
  frame: number,
  box: Box,
  measure: Measure,
): Shape[] {
  const colour = PAPER[lane.name];
  const bold = { size: 22, bold: true };
  const { x, y, width } = box;
  const masks = lane.masksLeft(frame);
  const time = store.timed ? duration(lane.clock[frame]) : "";
  const forwards = lane.foreign ? "" : plural(lane.forwards[frame], "forward");
  const spent = [time, forwards].filter(Boolean).join(" · ") + branchNote(lane);
  const facts = [spent, plural(masks, "mask") + " left"].filter(Boolean).join(" · ");
  const title = fitted(lane.start.title, width - 40, bold, measure);
  const share = lane.at.length ? 1 - masks / lane.at.length : 0;
  return [
    { x, y, width: 28, height: 28, fill: colour, round: 5 },
    { ...bold, text: lane.name.toUpperCase(), x: x + 14, y: y + 22, fill: "#fff", centred: true },
    { ...bold, text: title, x: x + 38, y: y + 22, fill: PAPER.mark },
    { size: 16, text: facts, x, y: y + 48, fill: PAPER.ink },
    { x, y: y + 54, width, height: 5, fill: PAPER.mask, round: 2 },
    { x, y: y + 54, width: width * share, height: 5, fill: colour, round: 2 },
  ];
}

/** The last lines of a lane's text; masks within it are one sign each. */
function textLines(lane: StartedLane, frame: number, width: number, measure: Measure): string[] {
  const whole = lane.text(frame).map((part) => part ?? "▒");
  const text = visible(whole.join("")).trim();
  const lines = wrapped(text, width, (some) => measure(some, LINE));
  return lines.slice(-LINES).map((line) => fitted(line, width, LINE, measure));
}
