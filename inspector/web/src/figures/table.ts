/** The numbers of figures as rows of a table, and the names of their files. */
import type { CsvCell } from "../base/download.ts";
import { cellName } from "./scales.ts";
import type { About, FigureSpec, HeatSpec, PlotSpec } from "./spec.ts";

/** The rows of a figure's CSV file, with a header. */
export function figureRows(spec: FigureSpec): CsvCell[][] {
  return spec.series ? plotRows(spec) : heatRows(spec);
}

function plotRows(spec: PlotSpec): CsvCell[][] {
  const rows: CsvCell[][] = [["series", spec.x.name, spec.y.name]];
  for (const { name, xs, ys } of spec.series) {
    xs.forEach((x, i) => rows.push([name, x, ys[i]]));
  }
  return rows;
}

function heatRows(spec: HeatSpec): CsvCell[][] {
  const rows: CsvCell[][] = [[spec.x.name, spec.y.name, spec.unit || "value"]];
  const { plain } = spec;
  for (let y = 0; y < spec.y.count; y++) {
    for (let x = 0; x < spec.x.count; x++) {
      const value = spec.value(x, y);
      const given = value !== null && plain ? plain(value) : value;
      rows.push([csvTick(spec.x, x), csvTick(spec.y, y), given]);
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
