/** The tokens of a lane as shapes on a light ground. */
import { PAPER } from "../../figures/inks.ts";
import { comparable, type Lane, type StartedLane } from "../lane.ts";
import { cellState, tokenLabel } from "../tokens.ts";
import { fitted, type Box, type Measure, type Shape } from "./shapes.ts";

/** How a state of a token looks; `label` stands in place of its text. */
interface Look {
  fill: string;
  ink: string;
  label?: string;
  stroke?: string;
  bold?: boolean;
  italic?: boolean;
}

/** The looks of a token's states, which are those of the light theme (`race.css`). */
export const LOOKS = {
  mask: { fill: PAPER.mask, ink: PAPER.hatch, label: "···" },
  settled: { fill: "#d6e8f5", ink: "#0b2f4a" },
  new: { fill: PAPER.new, ink: "#1c1300", bold: true },
  fixed: { fill: PAPER.paper, ink: PAPER.mark, stroke: "#cc79a7" },
  end: { fill: "#c9cfd7", ink: PAPER.mark, stroke: PAPER.ink, italic: true },
  pad: { fill: PAPER.paper, ink: PAPER.hatch, stroke: PAPER.rule, label: "////" },
} satisfies Record<string, Look>;

/** The outline of a token that differs from that of the other lane. */
const DIFFERS = PAPER.differs;

const COLUMNS = [8, 12, 16, 24, 32, 48, 64];
const LOWEST = 12;
const TALLEST = 50;
const ROOM = { width: 22, height: 13 }; // that a text needs
const GAP = 2;

/** A lane in a frame, beside the other one. */
export interface LaneFrame {
  lane: StartedLane;
  frame: number;
  other: Lane;
  otherFrame: number;
}

/** The number of columns with which so many cells fit into a height, and the height of a cell. */
export function gridShape(count: number, high: number): { columns: number; height: number } {
  const heightOf = (columns: number): number => high / Math.ceil(count / columns);
  const columns = COLUMNS.find((some) => heightOf(some) >= LOWEST) ?? COLUMNS[COLUMNS.length - 1];
  return { columns, height: Math.min(heightOf(columns), TALLEST) };
}

/** The height that so many cells take of a height. */
export function gridHeight(count: number, high: number): number {
  const { columns, height } = gridShape(count, high);
  return Math.ceil(count / columns) * height;
}

/** The cells of a lane in a box. */
export function laneCells(shown: LaneFrame, box: Box, measure: Measure): Shape[] {
  const { lane, frame, other, otherFrame } = shown;
  const { columns, height } = gridShape(lane.at.length, box.height);
  const width = box.width / columns;
  const end = lane.firstEnd(frame);
  const compared = comparable(lane, other);
  return lane.at.flatMap((_, place) => {
    const token = lane.token(place, frame);
    const rival = compared ? other.token(place, otherFrame) : null;
    const state = cellState(token, place, frame, end, lane.stops);
    const cell = {
      x: box.x + (place % columns) * width,
      y: box.y + Math.floor(place / columns) * height,
      width: width - GAP,
      height: height - GAP,
    };
    const text = token ? tokenLabel(state, token, lane) : "";
    return cellShapes(state, text, cell, Boolean(token && rival && token.id !== rival.id), measure);
  });
}

/** One cell with its text, if there is room for it. */
export function cellShapes(
  state: string,
  text: string,
  cell: Box,
  differs: boolean,
  measure: Measure,
): Shape[] {
  const [name, ...more] = state.split(" ");
  const own: Look = LOOKS[name as keyof typeof LOOKS];
  const look: Look = more.includes("new") ? { ...own, fill: LOOKS.new.fill, bold: true } : own;
  const stroke = differs ? DIFFERS : look.stroke;
  const box: Shape = { ...cell, fill: look.fill, stroke, thick: differs ? 2 : 1, round: 3 };
  if (cell.height < ROOM.height || cell.width < ROOM.width) return [box];
  const size = Math.max(Math.min(cell.height * 0.55, 12), Math.min(cell.height * 0.38, 16));
  const face = { size, bold: look.bold, italic: look.italic };
  const words = fitted(look.label ?? text, cell.width - 4, face, measure);
  if (!words) return [box];
  const at = { x: cell.x + cell.width / 2, y: cell.y + cell.height / 2 + face.size * 0.36 };
  const underlined = look.fill === LOOKS.new.fill;
  return [box, { ...at, ...face, text: words, fill: look.ink, centred: true, underlined }];
}
