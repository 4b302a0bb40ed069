/** The numbers of figures as rows of a table, and the names of their files. */
import type { CsvCell } from "../base/download.ts";
import { cellName } from "./scales.ts";
import { isJoined, severalOf } from "./cells.ts";
import type { About, CellBlocks, FigureSpec, HeatSpec, Joined, PlotSpec } from "./spec.ts";

/** The rows of a figure's CSV file, with a header. */
export function figureRows(spec: FigureSpec): CsvCell[][] {
  return spec.series ? plotRows(spec) : heatRows(spec);
}

/** Bars with ends have them in columns of their own: the bins of a histogram. */
function plotRows(spec: PlotSpec): CsvCell[][] {
  const across = spec.x.name;
  const binned = spec.series.some(({ ends }) => ends);
  const places = binned ? ["from " + across, "to " + across] : [across];
  const rows: CsvCell[][] = [["series", ...places, spec.y.name]];
  for (const { name, table = name, xs, ys, ends, least } of spec.series) {
    if (table === null) continue;
    xs.forEach((x, i) => {
      const from = i ? x : (least ?? x);
      rows.push([table, from, ...(binned ? [ends?.[i] ?? null] : []), ys[i]]);
    });
  }
  return rows;
}

/** The cells that joined cells of a heat map begin and end with, from 0. */
function spansOf({ from, to, factor }: Joined, count: number): [number, number][] {
  const spans: [number, number][] = [];
  for (let cell = from; cell < to; cell += factor) {
    const [first, last] = [Math.max(cell, 0), Math.min(cell + factor, to, count) - 1];
    if (first <= last) spans.push([first, last]);
  }
  return spans;
}

/** Joined cells have one row, which names the first and the last cell on both axes. */
function joinedRows(spec: HeatSpec, { x, y }: CellBlocks): CsvCell[][] {
  const [across, down] = axisNames(spec);
  const joined = spec.joined ?? `${severalOf(spec)} of the cells`;
  const value = `${spec.unit || "value"}, ${joined}`;
  const rows: CsvCell[][] = [[across, "last " + across, down, "last " + down, value]];
  for (const [top, bottom] of spansOf(y, spec.y.count)) {
    for (const [left, right] of spansOf(x, spec.x.count)) {
      const ends = [csvTick(spec.x, left), csvTick(spec.x, right)];
      rows.push([...ends, csvTick(spec.y, top), csvTick(spec.y, bottom), plainAt(spec, left, top)]);
    }
  }
  return rows;
}

/** The columns of both places of a cell: they never have the same name, or none. */
function axisNames({ x, y }: HeatSpec): [string, string] {
  return [x.name === y.name ? "other " + x.name : x.name, y.name || "row"];
}

function plainAt({ value, plain }: HeatSpec, x: number, y: number): CsvCell {
  const found = value(x, y);
  return found !== null && plain ? plain(found) : found;
}

function heatRows(spec: HeatSpec): CsvCell[][] {
  if (spec.blocks && isJoined(spec)) return joinedRows(spec, spec.blocks);
  const { column } = spec;
  const more = (text: CsvCell): CsvCell[] => (column ? [text] : []);
  const rows: CsvCell[][] = [[...axisNames(spec), spec.unit || "value", ...more(column?.name)]];
  for (let y = 0; y < spec.y.count; y++) {
    for (let x = 0; x < spec.x.count; x++) {
      const cell = [csvTick(spec.x, x), csvTick(spec.y, y), plainAt(spec, x, y)];
      rows.push([...cell, ...more(column?.text(x, y))]);
    }
  }
  return rows;
}

function csvTick(axis: HeatSpec["x"], cell: number): CsvCell {
  return axis.tick ? cellName(axis, cell) : cell + 1;
}

/** A file name without its ending, such as driftscope-1a2b3c4d-lane-a-layer-4-v-drift-steps. */
export function fileStem(figure: string, about: About = {}): string {
  const { run, lane, layer, quantity } = about;
  const parts = [
    "driftscope",
    run?.slice(0, 8),
    lane && "lane-" + lane,
    layer === undefined ? "" : `layer-${layer + 1}`,
    quantity,
    figure,
  ];
  const plain = parts.map((part) => (part ?? "").toLowerCase().replace(/[^a-z0-9]+/g, "-"));
  return plain
    .map((part) => part.replace(/^-|-$/g, ""))
    .filter(Boolean)
    .join("-");
}
