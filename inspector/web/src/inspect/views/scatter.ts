import { cividis } from "../../base/colours.ts";
import { write } from "../../base/dom.ts";
import { percent, plural } from "../../base/format.ts";
import type { Figure } from "../../figures/figure.ts";
import type { CellAxis, ScaleLegend } from "../../figures/spec.ts";
import { at, type NdArray, type Values } from "../arrays.ts";
import { layerAt, layerAxis, placesOf } from "../axes.ts";
import type { Panel } from "../panel.ts";
import { QUANTITY_NAMES } from "../quantities.ts";
import { viewOf } from "../view.ts";

/** Rows by the drift of two quantities (`inspector.views.scatter`). */
export interface ScatterData {
  /** The compared quantities. */
  pairs: [string, string][];
  /** Rows by pair, layer, and the bins of both drifts: [pairs, layers, bins, bins]. */
  counts: NdArray;
  /** Pearson's r, Pearson's r of the logarithms and Spearman's: [pairs, layers + 1 (all), 3]. */
  stats: NdArray;
  /** Rows counted [pairs, layers + 1 (all)]. */
  rows: NdArray;
  /** The number of rows in a layer under plain decoding. */
  most: number;
}

/** A pair of quantities, and its index in the document. */
interface ChosenPair {
  first: string;
  second: string;
  index: number;
}

const DECADES = [".0001", ".001", ".01", ".1", "1"];
const ROWS_SCALE: ScaleLegend = {
  kind: "scale",
  name: "rows",
  range: { from: 1, to: 1e5, log: true },
  colour: cividis,
  ticks: [
    [0, "1"],
    [0.2, "10"],
    [0.4, "100"],
    [0.6, "10³"],
    [0.8, "10⁴"],
    [1, "≥ 10⁵"],
  ],
};
const LOOKS: readonly (readonly [string, readonly number[]])[] = [
  ["#0072b2", []],
  ["#e69f00", [7, 3]],
  ["#009e73", [2, 3]],
];
const FIGURES = 3;

/** Whether the drift of one quantity predicts that of another. */
export const scatter = viewOf<ScatterData>({
  title: "V against outputs",
  level: "layers",
  source: "scatter",
  about:
    "Rows by the drift of two quantities; a row counts if all quantities were evaluated. dLLM-Cache selects rows by the drift of V, because it should predict the drift of the attention and feed-forward outputs (its figure 2). " +
    "DARE selects rows by the drift of the query of the first head (its figure 2). The closer the rows are to a rising line, the better the prediction. The correlations are over all rows.",
  controls: [
    {
      name: "of",
      label: "Predictor",
      value: "v",
      options: [
        ["v", "V"],
        ["q0", "query of the first head"],
      ],
    },
    {
      name: "layers",
      label: "Layers",
      value: "all",
      options: [
        ["one", "layer of the cursor"],
        ["all", "all"],
      ],
    },
  ],
  draw(panel, data) {
    const chosen = data.pairs
      .map(([first, second], index) => ({ first, second, index }))
      .filter(({ first }) => first === panel.choice("of"));
    const layers = data.counts.shape[1];
    const layer = panel.choice("layers") === "all" ? layers : cursorLayer(panel, layers);
    drawSentence(panel, data, chosen, layer);
    for (let k = 0; k < FIGURES; k++) {
      const figure = panel.figure(`scatter-${k + 1}`);
      figure.root.hidden = k >= chosen.length;
      if (k < chosen.length) drawMap(panel, data, chosen[k], layer, figure);
    }
    drawLayers(panel, data, chosen);
  },
});

function cursorLayer(panel: Panel, layers: number): number {
  return Math.min(panel.cursor.layer ?? 0, layers - 1);
}

const EVERYWHERE = new WeakMap<NdArray, Map<number, Int32Array>>();

/** The rows of a pair by both bins, in a layer or, if `layer` is their number, in all layers. */
export function rowsByBins(counts: NdArray, pair: number, layer: number): Values {
  const [, layers, size] = counts.shape;
  const cells = size * size;
  const from = (l: number): number => (pair * layers + l) * cells;
  if (layer < layers) return counts.values.subarray(from(layer), from(layer) + cells);
  const known = EVERYWHERE.get(counts) ?? new Map<number, Int32Array>();
  EVERYWHERE.set(counts, known);
  let sum = known.get(pair);
  if (!sum) {
    sum = new Int32Array(cells);
    for (let l = 0; l < layers; l++) {
      for (let i = 0; i < cells; i++) sum[i] += counts.values[from(l) + i];
    }
    known.set(pair, sum);
  }
  return sum;
}

function whereWords(data: ScatterData, layer: number): string {
  return layer < data.counts.shape[1] ? `layer ${layer + 1}` : "all layers";
}

function coefficient(value: number): string {
  return Number.isFinite(value) ? value.toFixed(3) : "–";
}

function statWords(data: ScatterData, pair: number, layer: number): string {
  const [r, logs, rho] = [0, 1, 2].map((i) => coefficient(at(data.stats, pair, layer, i)));
  return `Spearman ${rho}, Pearson ${r}, Pearson of the logarithms ${logs}`;
}

function drawSentence(
  panel: Panel,
  data: ScatterData,
  chosen: readonly ChosenPair[],
  layer: number,
): void {
  const rows = at(data.rows, chosen[0].index, layer);
  const layers = data.counts.shape[1];
  const most = data.most * (layer < layers ? 1 : layers);
  const parts = [`${plural(rows, "row")} of ${whereWords(data, layer)} counted.`];
  for (const { first, second, index } of chosen) {
    const names = `${nameOf(first)} against ${QUANTITY_NAMES[second]}`;
    parts.push(`${names}: ${statWords(data, index, layer)}.`);
  }
  write(panel.block("sum", "p", "ds-wide"), parts.join(" "));
  const note = panel.block("missing", "p", "ds-note ds-wide");
  note.hidden = rows >= most;
  if (note.hidden) return;
  write(
    note,
    percent(1 - rows / most) +
      " of the rows are missing: the cache reused them, so their drift is unknown. To see all rows, record plain decoding, a lane without a cache.",
  );
}

/** A quantity at the beginning of a sentence. */
function nameOf(quantity: string): string {
  return quantity === "q0" ? "Query of the first head" : QUANTITY_NAMES[quantity];
}

/** The lower edge of a bin of 1 − cosine, of `size` bins from 0.0001 to 1. */
export function binEdge(bin: number, size: number): number {
  return 10 ** (-4 + (4 * bin) / size);
}

/** The range of a bin as words; the first begins at 0 and the last ends at 2. */
export function binSpan(bin: number, size: number): string {
  const low = bin ? binEdge(bin, size).toPrecision(2) : "0";
  return `${low} to ${bin + 1 < size ? binEdge(bin + 1, size).toPrecision(2) : "2"}`;
}

function acrossAxis(name: string, size: number): CellAxis {
  return {
    name: "1 − cos, " + name,
    count: size,
    ticks: DECADES.map((text, k) => [(k * size) / 4, text]),
    up: false,
    tick: (i) => binEdge(i, size).toPrecision(3),
  };
}

function upAxis(name: string, size: number): CellAxis {
  return {
    name: "1 − cos, " + name,
    count: size,
    ticks: DECADES.map((text, k) => [size - Math.max((k * size) / 4, 1), k ? text : "≤ " + text]),
    up: true,
    tick: (i) => binEdge(size - 1 - i, size).toPrecision(3),
  };
}

function drawMap(
  panel: Panel,
  data: ScatterData,
  { first, second, index }: ChosenPair,
  layer: number,
  figure: Figure,
): void {
  const size = data.counts.shape[2];
  const rows = rowsByBins(data.counts, index, layer);
  const count = (x: number, y: number): number => rows[x * size + size - 1 - y];
  const other = QUANTITY_NAMES[second];
  const spearman = coefficient(at(data.stats, index, layer, 2));
  figure.show({
    title: `${nameOf(first)} against ${other}, ${whereWords(data, layer)}: Spearman ${spearman}`,
    key: [index, layer, panel.cursor.lane, panel.inspector.key].join(),
    about: {
      layer: layer < data.counts.shape[1] ? layer : undefined,
      quantity: `${first}-${second}`,
    },
    x: acrossAxis(nameOf(first), size),
    y: upAxis(other, size),
    value: (x, y) => count(x, y) || null,
    colour: (found) => cividis(Math.log10(found) / 5),
    legend: ROWS_SCALE,
    unit: "rows",
    blank: "no row",
    words: (x, y) =>
      `${plural(count(x, y), "row")} with a drift of ${binSpan(x, size)} in ${QUANTITY_NAMES[first]} ` +
      `and ${binSpan(size - 1 - y, size)} in ${other}`,
    square: 460,
  });
}

function drawLayers(panel: Panel, data: ScatterData, chosen: readonly ChosenPair[]): void {
  const layers = data.counts.shape[1];
  const xs = placesOf(layers);
  panel.figure("scatter-layers").show({
    title: "Spearman's rank correlation by layer",
    about: { quantity: panel.choice("of") },
    x: layerAxis(layers),
    y: { name: "Spearman", from: -1, to: 1 },
    series: chosen.map(({ second, index }, k) => ({
      name: "with " + QUANTITY_NAMES[second],
      colour: LOOKS[k][0],
      dash: LOOKS[k][1],
      xs,
      ys: xs.map((_, l) => at(data.stats, index, l, 2)),
    })),
    rules: [{ y: 0 }],
    at: cursorLayer(panel, layers) + 1,
    words: (x) => {
      const l = layerAt(x, layers);
      const parts = chosen.map(
        ({ second, index }) => `with ${QUANTITY_NAMES[second]} ${statWords(data, index, l)}`,
      );
      const rows = plural(at(data.rows, chosen[0].index, l), "row");
      return `Layer ${l + 1}, ${rows}: ${parts.join("; ")}`;
    },
    pick: (x, _, pin) => panel.pick({ layer: layerAt(x, layers) }, pin),
    leave: () => panel.pick(null, false),
    height: 300,
  });
}
