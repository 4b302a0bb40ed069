import { cividis } from "../../base/colours.ts";
import { write } from "../../base/dom.ts";
import { number, percent, plural } from "../../base/format.ts";
import type { Figure } from "../../figures/figure.ts";
import type { CellAxis, ScaleLegend } from "../../figures/spec.ts";
import { at, type NdArray } from "../arrays.ts";
import { overLayers, placesOf } from "../axes.ts";
import type { Panel } from "../panel.ts";
import { QUANTITY_NAMES } from "../quantities.ts";
import type { Query } from "../slice.ts";
import type { View } from "../view.ts";

/** Rows by the drift of two quantities, in a layer or in all layers. */
interface PairData {
  /** Rows by the bins of both drifts [bins, bins]. */
  counts: NdArray;
  /**
   * Pearson's r, Pearson's r of the logarithms and Spearman's [3] of a layer; of all layers, of
   * each and of all together [layers + 1, 3].
   */
  stats: NdArray;
  /** Rows counted [], or of each layer and of all [layers + 1]. */
  rows: NdArray;
  /** Every so many steps one was counted. */
  every: number;
}

/** A pair of quantities, with its rows in all layers and in those that are shown. */
interface Pair {
  first: string;
  second: string;
  all: PairData;
  shown: PairData;
}

/** The compared pairs (`inspector.views.scatter.PAIRS`). */
const PAIRS: readonly (readonly [string, string])[] = [
  ["v", "attn"],
  ["v", "ffn"],
  ["q0", "k"],
  ["q0", "v"],
  ["q0", "attn"],
];

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
export const scatter: View = {
  title: "V against outputs",
  level: "layers",
  about:
    "Rows by the drift of two quantities; a row counts if all quantities were evaluated. dLLM-Cache selects rows by the drift of V, because it should predict the drift of the attention and feed-forward outputs (its figure 2). " +
    "DARE selects rows by the drift of the query of the first head (its figure 2). The closer the rows are to a rising line, the better the prediction. The correlations are over the rows that count.",
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
  draw(panel) {
    const wanted = PAIRS.filter(([first]) => first === panel.choice("of"));
    const layer = panel.choice("layers") === "all" ? null : panel.spot.layer;
    const sum = panel.block("sum", "p", "ds-wide");
    const note = panel.block("missing", "p", "ds-note ds-wide");
    const figures = Array.from({ length: FIGURES }, (_, k) => panel.figure(`scatter-${k + 1}`));
    const pairs: (Pair | null)[] = figures.map((figure, k) => {
      figure.root.hidden = k >= wanted.length;
      return k < wanted.length ? pairOf(panel, figure, wanted[k], layer) : null;
    });
    for (const [k, pair] of pairs.entries()) if (pair) drawMap(panel, pair, layer, figures[k]);
    drawLayers(panel, wanted);
    const chosen = pairs.filter((pair) => pair !== null);
    if (chosen.length === wanted.length) drawSentence(panel, chosen, layer, { sum, note });
    else if (panel.complete) {
      write(sum, ""); // a pair has no data, which its figure says
      note.hidden = true;
    }
  },
};

/** The slice of a pair in all layers. */
function pairQuery([x, y]: readonly [string, string]): Query {
  return { view: "scatter", part: "pair", x, y };
}

/** The data of a pair in a layer, or in all (null); null while its figure waits. */
function pairOf(
  panel: Panel,
  figure: Figure,
  names: readonly [string, string],
  layer: number | null,
): Pair | null {
  const [first, second] = names;
  const query = pairQuery(names);
  const found = panel.parts<{ all: PairData; shown: PairData }>(figure, {
    all: query,
    shown: layer === null ? query : { ...query, layer },
  });
  return found && { first, second, ...found };
}

function whereWords(layer: number | null): string {
  return layer === null ? "all layers" : `layer ${layer + 1}`;
}

/** The figures of a layer, or of all together (null), in the data of all layers. */
function statsOf({ stats }: PairData, layer: number | null): number[] {
  const row = layer ?? stats.shape[0] - 1;
  return [0, 1, 2].map((i) => at(stats, row, i));
}

function rowsOf({ rows }: PairData, layer: number | null): number {
  return at(rows, layer ?? rows.shape[0] - 1);
}

/** The correlations of a pair in words. */
export function statWords(stats: readonly number[]): string {
  const [r, logs, rho] = stats.map((value) => number(value, 3));
  return `Spearman ${rho}, Pearson ${r}, Pearson of the logarithms ${logs}`;
}

/** The figures of what is shown: of a layer from its own slice, which has all its rows. */
function shownStats({ all, shown }: Pair, layer: number | null): number[] {
  return layer === null ? statsOf(all, null) : Array.from(shown.stats.values);
}

function drawSentence(
  panel: Panel,
  chosen: readonly Pair[],
  layer: number | null,
  { sum, note }: { sum: HTMLElement; note: HTMLElement },
): void {
  const [{ all, shown }] = chosen;
  const rows = layer === null ? rowsOf(all, null) : shown.rows.values[0];
  const { every } = layer === null ? all : shown;
  const { steps, positions, layers } = panel.frame;
  // The rows of all positions, recorded or not, but those of the first step, which have no drift.
  const most = (Math.ceil(steps / every) - 1) * positions * (layer === null ? layers : 1);
  const which = every > 1 ? `, in one step out of ${every}` : "";
  const parts = [`${plural(rows, "row")} of ${whereWords(layer)} counted${which}.`];
  for (const pair of chosen) {
    const names = `${nameOf(pair.first)} against ${QUANTITY_NAMES[pair.second]}`;
    parts.push(`${names}: ${statWords(shownStats(pair, layer))}.`);
  }
  write(sum, parts.join(" "));
  note.hidden = rows >= most;
  if (note.hidden) return;
  write(
    note,
    percent(1 - rows / most) +
      " of the rows of all positions are missing: they were not computed again in the step, or not recorded, so their drift is unknown. A lane with full attention and without a cache, recorded at all positions, has all rows.",
  );
}

/** A quantity at the beginning of a sentence. */
function nameOf(quantity: string): string {
  return quantity === "q0" ? "Query of the first head" : QUANTITY_NAMES[quantity];
}

/** The lower edge of a bin of 1 − cosine, of `size` bins from 0.0001 to 1. */
function binEdge(bin: number, size: number): number {
  return 10 ** (-4 + (4 * bin) / size);
}

/** The range of a bin as words; the first begins at 0 and the last ends at 2. */
export function binSpan(bin: number, size: number): string {
  const low = bin ? binEdge(bin, size).toPrecision(2) : "0";
  return `${low} to ${bin + 1 < size ? binEdge(bin + 1, size).toPrecision(2) : "2"}`;
}

/** The axis of a quantity's bins, upwards or to the right. A cell is named by its bin. */
export function binAxis(name: string, size: number, up: boolean): CellAxis {
  const along = (place: number): number => (up ? size - Math.max(place, 1) : place);
  return {
    name: "1 − cos, " + name,
    count: size,
    ticks: DECADES.map((text, k) => [along((k * size) / 4), up && !k ? "≤ " + text : text]),
    up,
    tick: (i) => binSpan(up ? size - 1 - i : i, size),
  };
}

function drawMap(panel: Panel, pair: Pair, layer: number | null, figure: Figure): void {
  const { first, second } = pair;
  const { counts } = pair.shown;
  const size = counts.shape[0];
  const count = (x: number, y: number): number => at(counts, x, size - 1 - y);
  const other = QUANTITY_NAMES[second];
  const spearman = number(shownStats(pair, layer)[2], 3);
  figure.show({
    title: `${nameOf(first)} against ${other}, ${whereWords(layer)}: Spearman ${spearman}`,
    key: [first, second, layer, panel.cursor.lane, panel.inspector.key].join(),
    about: { layer: layer ?? undefined, quantity: `${first}-${second}` },
    x: binAxis(nameOf(first), size, false),
    y: binAxis(other, size, true),
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

function drawLayers(panel: Panel, wanted: readonly (readonly [string, string])[]): void {
  const figure = panel.figure("scatter-layers");
  const queries = wanted.map((names): [string, Query] => [names[1], pairQuery(names)]);
  const found = panel.parts<Record<string, PairData>>(figure, Object.fromEntries(queries));
  if (!found) return;
  const chosen = wanted.map(([, second]) => ({ second, all: found[second] }));
  const xs = placesOf(panel.frame.layers);
  figure.show({
    title: "Spearman's rank correlation by layer",
    about: { quantity: panel.choice("of") },
    y: { name: "Spearman", from: -1, to: 1 },
    series: chosen.map(({ second, all }, k) => ({
      name: "with " + QUANTITY_NAMES[second],
      colour: LOOKS[k][0],
      dash: LOOKS[k][1],
      xs,
      ys: xs.map((_, l) => statsOf(all, l)[2]),
    })),
    rules: [{ y: 0 }],
    ...overLayers(panel, (l) => {
      const parts = chosen.map(
        ({ second, all }) => `with ${QUANTITY_NAMES[second]} ${statWords(statsOf(all, l))}`,
      );
      const rows = plural(rowsOf(chosen[0].all, l), "row");
      return `Layer ${l + 1}, ${rows}: ${parts.join("; ")}`;
    }),
    height: 300,
  });
}
