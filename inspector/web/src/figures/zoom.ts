/** The part of a heat map that is shown. Nothing here draws. */
import type { Cell } from "./reading.ts";
import { cellName, type Box } from "./scales.ts";
import { blockCount } from "./cells.ts";
import type { CellAxis, CellBlocks, CellCodes, HeatSpec, Joined } from "./spec.ts";

/** A range of the cells of an axis, from 0. Fractions are kept between gestures. */
export interface Span {
  from: number;
  to: number;
}

/** The shown part of a heat map. */
export interface Zoom {
  x: Span;
  y: Span;
}

/** A point in cells. */
export interface Point {
  x: number;
  y: number;
}

/** The two axes of a heat map. */
export type Axes = Readonly<Record<"x" | "y", CellAxis>>;

/** Cells that are larger than this, in CSS pixels, are not made larger by steps of zoom. */
const LARGE = 24;
const SMALL_DRAG = 8; // CSS pixels below which a drag does not choose a range of an axis

/** The whole heat map. */
export function wholeZoom({ x, y }: Axes): Zoom {
  return { x: { from: 0, to: x.count }, y: { from: 0, to: y.count } };
}

function within(from: number, length: number, count: number): Span {
  const start = Math.min(Math.max(from, 0), count - length);
  return { from: start, to: start + length };
}

/** A span in whole cells, at least one. */
function wholeCells({ from, to }: Span, count: number): Span {
  const length = Math.min(Math.max(Math.round(to - from), 1), count);
  return within(Math.round(from), length, count);
}

/** The shown part in whole cells; null if it is the whole heat map. */
export function shownCells(axes: Axes, zoom: Zoom | null): Zoom | null {
  if (!zoom) return null;
  const cells = {
    x: wholeCells(zoom.x, axes.x.count),
    y: wholeCells(zoom.y, axes.y.count),
  };
  const all = (["x", "y"] as const).every((side) => {
    return cells[side].to - cells[side].from === axes[side].count;
  });
  return all ? null : cells;
}

/** A span `factor` times as long; `around` stays in place, and `least` cells stay. */
function scaled(span: Span, count: number, factor: number, around: number, least: number): Span {
  const before = span.to - span.from;
  const length = Math.min(Math.max(before * factor, Math.min(least, before)), count);
  return within(around - ((around - span.from) * length) / before, length, count);
}

/** Make the shown part `factor` times as long around a point; large cells are not enlarged. */
export function zoomedBy(axes: Axes, box: Box, zoom: Zoom, factor: number, around: Point): Zoom {
  const least = { x: (box.right - box.left) / LARGE, y: (box.bottom - box.top) / LARGE };
  const one = (side: "x" | "y"): Span => {
    const cells = Math.max(least[side], 1);
    return scaled(zoom[side], axes[side].count, factor, around[side], cells);
  };
  return { x: one("x"), y: one("y") };
}

/** Move the shown part by cells. */
export function movedBy(axes: Axes, zoom: Zoom, by: Point): Zoom {
  const one = (side: "x" | "y"): Span => {
    const { from, to } = zoom[side];
    return within(from + by[side], to - from, axes[side].count);
  };
  return { x: one("x"), y: one("y") };
}

/** Move the shown part as little as possible so that it has a cell. */
export function zoomWith(axes: Axes, zoom: Zoom, cell: Cell): Zoom {
  const by = (side: "x" | "y"): number => {
    const { from, to } = wholeCells(zoom[side], axes[side].count);
    return Math.min(cell[side] - from, 0) + Math.max(cell[side] + 1 - to, 0);
  };
  return movedBy(axes, zoom, { x: by("x"), y: by("y") });
}

/** The middle of the shown part. */
export function middleOf({ x, y }: Zoom): Point {
  return { x: (x.from + x.to) / 2, y: (y.from + y.to) / 2 };
}

/** The point of the heat map at a place in the box, in CSS pixels. */
export function pointAt(zoom: Zoom, box: Box, px: number, py: number): Point {
  const { x, y } = zoom;
  return {
    x: x.from + ((px - box.left) / (box.right - box.left)) * (x.to - x.from),
    y: y.from + ((py - box.top) / (box.bottom - box.top)) * (y.to - y.from),
  };
}

/** A rectangle in CSS pixels within a box, whose corners may be in any order. */
export function dragBox(box: Box, [x1, y1]: readonly number[], [x2, y2]: readonly number[]): Box {
  const x = (px: number): number => Math.min(Math.max(px, box.left), box.right);
  const y = (py: number): number => Math.min(Math.max(py, box.top), box.bottom);
  const out = { left: x(x1), right: x(x2), top: y(y1), bottom: y(y2) };
  if (out.left > out.right) [out.left, out.right] = [out.right, out.left];
  if (out.top > out.bottom) [out.top, out.bottom] = [out.bottom, out.top];
  const tall = out.bottom - out.top >= SMALL_DRAG;
  const wide = out.right - out.left >= SMALL_DRAG;
  if (!tall && wide) [out.top, out.bottom] = [box.top, box.bottom];
  if (!wide && tall) [out.left, out.right] = [box.left, box.right];
  return out;
}

/** The part inside a rectangle of the box: all cells that it touches; null for a tiny one. */
export function zoomInto(axes: Axes, box: Box, zoom: Zoom, area: Box): Zoom | null {
  if (area.right - area.left < SMALL_DRAG && area.bottom - area.top < SMALL_DRAG) return null;
  const one = pointAt(zoom, box, area.left, area.top);
  const other = pointAt(zoom, box, area.right, area.bottom);
  const span = (side: "x" | "y"): Span => ({
    from: Math.max(Math.floor(one[side] + 1e-6), 0),
    to: Math.min(Math.ceil(other[side] - 1e-6), axes[side].count),
  });
  return { x: span("x"), y: span("y") };
}

/** The shown part in words. */
export function zoomWords(axes: Axes, cells: Zoom): string {
  const parts = (["x", "y"] as const).map((side) => {
    const [axis, { from, to }] = [axes[side], cells[side]];
    const last = to - from > 1 ? " to " + cellName(axis, to - 1) : "";
    return `${axis.name} ${cellName(axis, from)}${last}`;
  });
  return "Shown: " + parts.join(", ");
}

/** A heat map of whole cells of another. Its `words` and `pick` are still of the other's cells. */
export function windowed(spec: HeatSpec, cells: Zoom): HeatSpec {
  const { x, y } = cells;
  const { value, over, under, dots, at, cells: codes, column } = spec;
  const blocks = spec.blocks && blocksIn(spec.blocks, cells);
  const shift =
    <Found>(read: (x: number, y: number) => Found) =>
    (column: number, row: number): Found =>
      read(column + x.from, row + y.from);
  return {
    ...spec,
    key: [spec.key, x.from, x.to, y.from, y.to].join(),
    x: axisPart(spec.x, x),
    y: axisPart(spec.y, y),
    value: shift(value),
    cells: codes && ((): CellCodes => codesPart(codes(), blocksOf(spec), blocks ?? cells)),
    blocks: blocks && movedBlocks(blocks, cells),
    over: over && shift(over),
    under: under && shift(under),
    column: column && { ...column, text: shift(column.text) },
    dots: dots
      ?.filter(([column, row]) => has(x, column) && has(y, row))
      .map(([column, row]) => [column - x.from, row - y.from] as const),
    at: at && placeIn(cells, at),
  };
}

/** Where a cell is in the shown part; null on an axis on which it is not shown. */
export function placeIn(
  { x, y }: Zoom,
  at: NonNullable<HeatSpec["at"]>,
): NonNullable<HeatSpec["at"]> {
  return {
    x: at.x !== null && has(x, at.x) ? at.x - x.from : null,
    y: at.y !== null && has(y, at.y) ? at.y - y.from : null,
  };
}

function has({ from, to }: Span, cell: number): boolean {
  return cell >= from && cell < to;
}

function axisPart(axis: CellAxis, span: Span): CellAxis {
  const { from, to } = span;
  return {
    ...axis,
    count: to - from,
    tick: (cell) => cellName(axis, cell + from),
    ticks: axis.ticks
      ?.filter(([place]) => place >= from && place <= to)
      .map(([place, text]) => [place - from, text] as const),
    marks: axis.marks
      ?.filter(({ at }) => at >= from && at <= to)
      .map((mark) => ({ ...mark, at: mark.at - from })),
  };
}

/** The blocks of all cells of a heat map: each cell for itself, unless it says otherwise. */
function blocksOf({ x, y, blocks }: HeatSpec): CellBlocks {
  const whole = (axis: CellAxis): Joined => ({ from: 0, to: axis.count, factor: 1 });
  return blocks ?? { x: whole(x), y: whole(y) };
}

/** The blocks of an axis that touch a range of cells, which may be none. */
function joinedIn({ from, to, factor }: Joined, span: Span): Joined {
  const block = (cell: number): number => from + Math.floor((cell - from) / factor) * factor;
  const first = Math.min(Math.max(block(span.from), from), to);
  const last = Math.min(Math.max(block(span.to - 1) + factor, first), to);
  return { from: first, to: last, factor };
}

function blocksIn(blocks: CellBlocks, cells: Zoom): CellBlocks {
  return { x: joinedIn(blocks.x, cells.x), y: joinedIn(blocks.y, cells.y) };
}

function movedBlocks({ x, y }: CellBlocks, cells: Zoom): CellBlocks {
  const moved = (axis: Joined, by: number): Joined => ({
    ...axis,
    from: axis.from - by,
    to: axis.to - by,
  });
  return { x: moved(x, cells.x.from), y: moved(y, cells.y.from) };
}

/** The codes of some blocks of a heat map: whole ones, of a range of cells. */
function codesPart(all: CellCodes, { x, y }: CellBlocks, part: Zoom): CellCodes {
  const wide = blockCount(x);
  const [left, right] = [part.x.from, part.x.to].map((at) => Math.ceil((at - x.from) / x.factor));
  const [top, bottom] = [part.y.from, part.y.to].map((at) => Math.ceil((at - y.from) / y.factor));
  const codes = all.codes.slice(0, (right - left) * (bottom - top));
  for (let row = top; row < bottom; row++) {
    const from = row * wide;
    codes.set(all.codes.subarray(from + left, from + right), (row - top) * (right - left));
  }
  return { ...all, codes };
}
