/** Scales and ticks of figures. Nothing here draws. */
import { format, formatPrefix } from "d3-format";
import { scaleLinear, scaleLog, tickFormat, type ScaleContinuousNumeric } from "d3-scale";
import type { CellAxis, FigureSpec, PlotAxis } from "./spec.ts";

/** The part of a drawing inside its axes, in CSS pixels. */
export interface Box {
  left: number;
  top: number;
  right: number;
  bottom: number;
}

/** A tick: its place on the axis and its label. */
export interface AxisTick {
  at: number;
  text: string;
}

export type PlotScale = ScaleContinuousNumeric<number, number>;

/** The default margins around the box, in CSS pixels. */
export const MARGIN = { left: 46, right: 12, top: 8, bottom: 34 };

const HEIGHT = 260; // of a drawing, by default
const LEAST_SQUARE = 120;

/** The extra height where the names of both axes do not fit on one line. */
const NAME_LINE = 14;
const LETTER = 6.4; // the mean width of a bold letter
const DIGIT = 6; // the mean width of a letter of a tick's label
const TICK_GAP = 8;
const TICK_ROOM = { x: 64, y: 24 };
const CELL_TICK_ROOM = { x: 64, y: 18 };
const MOST_DIGITS = 1e6;
const POWERS = ["⁰", "¹", "²", "³", "⁴", "⁵", "⁶", "⁷", "⁸", "⁹"];

/** Whether the names of both axes need a line each. */
export function namesClash(width: number, x: string, y: string): boolean {
  return x !== "" && y !== "" && (x.length + y.length + 6) * LETTER > width;
}

/** A drawing's size in CSS pixels and its box. */
export interface Layout {
  width: number;
  height: number;
  box: Box;
}

/** The layout of a figure at a width. The left margin has room for the labels of y. */
export function layoutOf(spec: FigureSpec, width: number): Layout {
  const asked = spec.height ?? HEIGHT;
  const left = spec.left ?? leftMargin(spec, (spec.square ?? asked) - MARGIN.top - MARGIN.bottom);
  let [end, tall] = [width, asked];
  if (spec.square !== undefined) {
    const around = left + MARGIN.right - MARGIN.top - MARGIN.bottom;
    tall = Math.max(Math.min(width - around, spec.square), LEAST_SQUARE);
    end = Math.min(width, tall + around);
  }
  const box = { left, top: MARGIN.top, right: end - MARGIN.right, bottom: tall - MARGIN.bottom };
  const lines = namesClash(box.right, spec.x.name, spec.y.name) ? NAME_LINE : 0;
  return { width, height: tall + lines, box };
}

function leftMargin(spec: FigureSpec, length: number): number {
  const ticks = spec.series ? plotTicks(spec.y, length, "y") : cellTicks(spec.y, length, "y");
  const longest = Math.max(0, ...ticks.map((tick) => tick.text.length));
  return Math.max(MARGIN.left, Math.ceil(longest * DIGIT) + TICK_GAP);
}

/** The scale of a chart's axis. On a logarithmic one, a value beyond an end stands at that end. */
export function plotScale(axis: PlotAxis, from: number, to: number): PlotScale {
  const end = axis.to === axis.from ? axis.from + 1 : axis.to;
  const scale = axis.log ? scaleLog().clamp(true) : scaleLinear();
  return scale.domain([axis.from, end]).range([from, to]);
}

/** The ticks of a chart's axis along a length in CSS pixels. */
export function plotTicks(axis: PlotAxis, length: number, side: "x" | "y"): AxisTick[] {
  const most = Math.max(Math.floor(length / TICK_ROOM[side]), 1);
  const values = axis.log ? logTicks(axis, most) : linearTicks(axis, most);
  const text = axis.tick ?? (axis.log ? logText(axis) : linearText(axis, values.length));
  return values.map((at) => ({ at, text: text(at) }));
}

/**
 * Round values, 1, 2 or 5 times a power of ten apart, with room for `most` such distances. Where only
 * one of them would be left, every second one of the last crowded values is taken, if these fit.
 */
function linearTicks(axis: PlotAxis, most: number): number[] {
  const scale = plotScale(axis, 0, 1);
  const fit = (values: number[]): boolean =>
    values.length > 1 && scale(values[1]) - scale(values[0]) >= 0.999 / most;
  let crowded: number[] = [];
  for (let count = most; count > 0; count--) {
    const ticks = scale.ticks(count).filter((value) => !axis.whole || Number.isInteger(value));
    if (fit(ticks)) return ticks;
    if (ticks.length < 2) {
      const step = crowded.length > 1 ? 2 * (crowded[1] - crowded[0]) : 1;
      const thinned = crowded.filter((value) => Number.isInteger(+(value / step).toFixed(6)));
      return fit(thinned) ? thinned : ticks;
    }
    crowded = ticks;
  }
  return crowded.slice(0, 1);
}

/** At most `most` powers of ten, evenly chosen; 2 and 5 times them too if there is only one. */
function logTicks(axis: PlotAxis, most: number): number[] {
  const low = Math.ceil(Math.log10(axis.from) - 1e-9);
  const high = Math.floor(Math.log10(axis.to) + 1e-9);
  if (high - low < 1) {
    const fine = plotScale(axis, 0, 1).ticks(10);
    return fine.filter((value) => [1, 2, 5].includes(+value.toExponential().split("e")[0]));
  }
  const every = Math.ceil((high - low + 1) / most);
  const powers: number[] = [];
  for (let power = low; power <= high; power += every) powers.push(Number(`1e${power}`));
  return powers;
}

/** Plain numbers, or powers of ten if the axis has very large or small ones. */
function logText(axis: PlotAxis): (value: number) => string {
  const plain = axis.from >= 1e-4 && axis.to <= 1e4;
  return (value) => {
    const power = Math.round(Math.log10(value));
    const round = Math.abs(value / Number(`1e${power}`) - 1) < 1e-9;
    if (plain || !round || power === 0 || power === 1) return String(+value.toPrecision(2));
    const digits = Array.from(String(Math.abs(power)), (digit) => POWERS[Number(digit)]);
    return "10" + (power < 0 ? "⁻" : "") + digits.join("");
  };
}

/** Labels of equal precision; millions and more are written as 5M. */
function linearText(axis: PlotAxis, count: number): (value: number) => string {
  const largest = Math.max(Math.abs(axis.from), Math.abs(axis.to));
  if (largest >= MOST_DIGITS) {
    const prefixed = formatPrefix("~", largest);
    return (value) => (value === 0 ? "0" : prefixed(value));
  }
  const text = tickFormat(axis.from, axis.to, Math.max(count, 1), ",f");
  return axis.whole ? format(",d") : text;
}

/** How many cells are between ticks, a power of two, so that at most `most` ticks are needed. */
export function cellStep(count: number, most: number): number {
  let step = 1;
  while (count / step > Math.max(most, 1)) step *= 2;
  return step;
}

/** The ticks of a heat map's axis along a length in CSS pixels; places are in cells. */
export function cellTicks(axis: CellAxis, length: number, side: "x" | "y"): AxisTick[] {
  if (axis.ticks) return axis.ticks.map(([at, text]) => ({ at, text }));
  const every = cellStep(axis.count, length / CELL_TICK_ROOM[side]);
  const ticks: AxisTick[] = [];
  for (let i = 0; i < axis.count; i += every) ticks.push({ at: i + 0.5, text: cellName(axis, i) });
  return ticks;
}

/** The label of a cell. */
export function cellName(axis: CellAxis, cell: number): string {
  return axis.tick ? axis.tick(cell) : String(cell + 1);
}

/** Where the cells of a heat map are. */
export interface CellPlaces {
  left: (x: number) => number;
  top: (y: number) => number;
  /** The size of a cell in CSS pixels. */
  wide: number;
  high: number;
  /** The cell at a point; null outside the heat map. */
  cell: (px: number, py: number) => { x: number; y: number } | null;
}

/** The places of the cells in a box. */
export function cellPlaces(spec: { x: CellAxis; y: CellAxis }, box: Box): CellPlaces {
  const wide = (box.right - box.left) / Math.max(spec.x.count, 1);
  const high = (box.bottom - box.top) / Math.max(spec.y.count, 1);
  return {
    left: (x) => box.left + x * wide,
    top: (y) => box.top + y * high,
    wide,
    high,
    cell: (px, py) => {
      const x = Math.floor((px - box.left) / wide);
      const y = Math.floor((py - box.top) / high);
      return x < 0 || y < 0 || x >= spec.x.count || y >= spec.y.count ? null : { x, y };
    },
  };
}
