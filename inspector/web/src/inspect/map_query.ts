/** Which cells of a heat map are asked for: all of them, or as many as the screen can show. */
import type { Span } from "../figures/zoom.ts";

/** What a figure shows of an axis: so many cells, of which a part, on so many device pixels. */
export interface AxisSight {
  count: number;
  /** The cells that are shown; null: all. */
  shown: Span | null;
  pixels: number;
}

/** A window of an axis, reduced so that at most so many cells are left. */
export interface AxisQuery {
  from?: number;
  to?: number;
  most?: number;
}

/** What is asked for: rows and columns. */
export interface MapQuery {
  rows: AxisQuery;
  columns: AxisQuery;
}

const WHOLE_BYTES = 1_500_000; // maps up to this size are not reduced
const GRAIN = { rows: 32, columns: 128 }; // windows begin and end at multiples of these

/** How many cells are joined so that about one is left for each pixel. */
function factorOf(count: number, pixels: number): number {
  return Math.max(Math.round(count / Math.max(pixels, 1)), 1);
}

/** Whether so many cells are few enough to be asked for one by one. */
function isSmall(rows: number, columns: number, bytes: number): boolean {
  return rows * columns * bytes <= WHOLE_BYTES;
}

function reducedAxis(count: number, pixels: number): AxisQuery {
  return { most: Math.ceil(count / factorOf(count, pixels)) };
}

/** The whole map; of a large one, not more cells than the screen has pixels. */
export function wholeQuery(rows: AxisSight, columns: AxisSight, bytes: number): MapQuery {
  if (isSmall(rows.count, columns.count, bytes)) return { rows: {}, columns: {} };
  return {
    rows: reducedAxis(rows.count, rows.pixels),
    columns: reducedAxis(columns.count, columns.pixels),
  };
}

function grown({ count, shown }: AxisSight, grain: number): Span {
  if (!shown) return { from: 0, to: count };
  const from = Math.floor(shown.from / grain) * grain;
  return { from, to: Math.min(Math.ceil(shown.to / grain) * grain, count) };
}

function partOf(axis: AxisSight, span: Span, small: boolean): AxisQuery {
  if (small) return span;
  const seen = axis.shown ? axis.shown.to - axis.shown.from : axis.count;
  const factor = factorOf(seen, axis.pixels);
  return { ...span, most: Math.ceil((span.to - span.from) / factor) };
}

/** The part of a large map that is in sight; null if the whole one shows it as well. */
export function partQuery(rows: AxisSight, columns: AxisSight, bytes: number): MapQuery | null {
  if (isSmall(rows.count, columns.count, bytes) || !(rows.shown ?? columns.shown)) return null;
  const [high, wide] = [grown(rows, GRAIN.rows), grown(columns, GRAIN.columns)];
  const small = isSmall(high.to - high.from, wide.to - wide.from, bytes);
  return { rows: partOf(rows, high, small), columns: partOf(columns, wide, small) };
}

/** A query as parameters of a slice; `first` cells of the columns' axis are not in the map. */
export function mapParameters(
  { rows, columns }: MapQuery,
  names: { rows: string; columns: string },
  first = 0,
): Record<string, number | undefined> {
  const shifted = (value: number | undefined): number | undefined =>
    value === undefined ? undefined : value + first;
  return {
    [names.rows + "_from"]: rows.from,
    [names.rows + "_to"]: rows.to,
    [names.columns + "_from"]: shifted(columns.from) ?? (first || undefined),
    [names.columns + "_to"]: shifted(columns.to),
    height: rows.most,
    width: columns.most,
  };
}
