/** The figures of a batch: agreement by setting, and aggregates of the recorded runs. */
import { cividis } from "../base/colours.ts";
import { number, percent, plural } from "../base/format.ts";
import type { FigureSpec, PlotSpec, Series } from "../figures/spec.ts";
import { layerAt, layerAxis, placesOf, stepAt } from "../inspect/axes.ts";
import { decade, DRIFT_SCALE } from "../inspect/codes.ts";
import { QUANTITY_NAMES } from "../inspect/quantities.ts";
import type { Aggregate, Row, Setting, Spread } from "./messages.ts";

/** What of the aggregates is shown. */
export interface Choice {
  quantity: string;
  /** Index of prompt or answer in the similarity. */
  part: number;
  /** Of the similarity by distance, counted from 0. */
  layer: number;
}

const LOOKS: readonly (readonly [string, readonly number[]])[] = [
  ["#0072b2", []],
  ["#d55e00", [6, 3]],
  ["#009e73", [2, 3]],
  ["#cc79a7", [8, 3, 2, 3]],
  ["#e69f00", [4, 2]],
  ["#56b4e9", [1, 2]],
];
const LOWEST = 1e-5; // of a logarithmic axis

/** Share of the prompts with at least so much agreement with plain decoding, by setting. */
export function agreementFigure(
  rows: readonly Row[],
  settings: readonly Setting[],
): PlotSpec | null {
  const series: Series[] = [];
  settings.forEach(({ name }, setting) => {
    if (!setting) return;
    const shares = rows
      .filter((row) => row.setting === setting && row.agreement !== null)
      .map((row) => row.agreement ?? 0)
      .sort((a, b) => a - b);
    if (!shares.length) return;
    const [colour, dash] = LOOKS[(setting - 1) % LOOKS.length];
    const below = shares.filter((share) => share < 1);
    const left = below.map((_, i) => (100 * (shares.length - i - 1)) / shares.length);
    const ys = [100, ...left, left.at(-1) ?? 100];
    series.push({ name, colour, dash, kind: "step", xs: [0, ...below, 1], ys });
  });
  if (!series.length) return null;
  return {
    title: "Prompts by the share of tokens that are those of plain decoding",
    x: { name: "at least this share of the tokens is the same", from: 0, to: 1 },
    y: { name: "% of the prompts", from: 0, to: 104 },
    series,
    height: 240,
    words: (x) => shareWords(rows, settings, x),
  };
}

function shareWords(rows: readonly Row[], settings: readonly Setting[], least: number): string {
  const parts = settings.slice(1).map(({ name }, i) => {
    const own = rows.filter((row) => row.setting === i + 1 && row.agreement !== null);
    const found = own.filter((row) => (row.agreement ?? 0) >= least - 1e-9).length;
    return `${name} ${found} of ${own.length}`;
  });
  return `At least ${percent(Math.max(least, 0))} of the tokens are the same: ${parts.join(", ")}`;
}

/** The figures of a setting's aggregates by name; those without data are left out. */
export function aggregateFigures(
  data: Aggregate,
  choice: Choice,
  pickLayer: (layer: number) => void,
): [string, FigureSpec][] {
  const found: [string, FigureSpec | null][] = [
    ["batch-drift", driftFigure(data, choice)],
    ["batch-counts", countFigure(data, choice)],
    ["batch-similarity", similarityFigure(data, choice, pickLayer)],
    ["batch-distance", distanceFigure(data, choice)],
    ["batch-error", errorFigure(data)],
    ["batch-tokens", lengthFigure(data)],
  ];
  return found.filter((one): one is [string, FigureSpec] => one[1] !== null);
}

/** What every title of an aggregate begins with. */
function lead({ runs, name }: Aggregate): string {
  return `Aggregate of ${plural(runs, "run")}, ${name}: `;
}

function hasData(values: unknown): boolean {
  return Array.isArray(values) ? values.some(hasData) : values !== null && values !== undefined;
}

function plusMinus(mean: number | null, sd: number | null): string {
  if (mean === null) return "no data";
  return mean.toPrecision(3) + (sd === null ? "" : ` ± ${sd.toPrecision(2)}`);
}

/** The mean of a share of the rows over the runs, and its standard deviation, as text. */
function shareOfRows(mean: number | null, sd: number | null): string {
  if (mean === null) return "no data";
  return `${percent(mean)}${sd === null ? "" : ` ± ${percent(sd)}`} of the rows`;
}

/** A mean as a line, and lines one standard deviation above and below it. */
function band(
  name: string,
  xs: readonly number[],
  { mean, sd }: { mean: readonly (number | null)[]; sd: readonly (number | null)[] },
  look: number,
): Series[] {
  const [colour] = LOOKS[look % LOOKS.length];
  const edge = (sign: number): (number | null)[] =>
    mean.map((value, i) => (value === null ? null : value + sign * (sd[i] ?? 0)));
  const dash = [2, 3];
  return [
    { name, colour, xs, ys: mean, width: 2 },
    { name: "", table: null, kind: "points", colour, size: 3, xs, ys: mean },
    {
      name: `${name} ± one standard deviation of the runs`,
      table: `${name} + one standard deviation of the runs`,
      colour,
      dash,
      xs,
      ys: edge(1),
    },
    {
      name: "",
      table: `${name} − one standard deviation of the runs`,
      colour,
      dash,
      xs,
      ys: edge(-1),
    },
  ];
}

function logAxis(name: string, series: readonly Series[]): PlotSpec["y"] {
  const values = series.flatMap(({ ys }) => ys).filter((y): y is number => y !== null && y > 0);
  const low = values.length ? Math.max(Math.min(...values), LOWEST) : LOWEST; // lower: at the end
  const high = Math.max(...values, low * 10);
  return {
    name,
    from: 10 ** Math.floor(Math.log10(low) + 1e-9),
    to: 10 ** Math.ceil(Math.log10(high) - 1e-9),
    log: true,
  };
}

function driftFigure(data: Aggregate, { quantity }: Choice): PlotSpec | null {
  const q = data.quantities.indexOf(quantity);
  const drift = data.drift && { mean: data.drift.mean[q], sd: data.drift.sd[q] };
  if (!drift || !hasData(drift.mean)) return null;
  const xs = placesOf(data.layers);
  const [, dash] = LOOKS[2];
  const colour = LOOKS[2][0];
  const rowsOf = (i: number): (number | null)[] => data.quantiles[q].map((shares) => shares[i]);
  const series: Series[] = [
    ...band("mean of the rows", xs, drift, 0),
    { name: "median of the rows", colour, dash: [], xs, ys: rowsOf(1) },
    {
      name: "quarter and three quarters of the rows",
      table: "quarter of the rows",
      colour,
      dash,
      xs,
      ys: rowsOf(0),
    },
    { name: "", table: "three quarters of the rows", colour, dash, xs, ys: rowsOf(2) },
  ];
  return {
    title: `${lead(data)}drift of ${QUANTITY_NAMES[quantity]} by layer`,
    x: layerAxis(data.layers),
    y: logAxis("1 − cosine", series),
    series,
    about: { quantity },
    height: 260,
    words: (x) => {
      const layer = layerAt(x, data.layers);
      return `Layer ${layer + 1}: ${plusMinus(drift.mean[layer], drift.sd[layer])}`;
    },
  };
}

function countFigure(data: Aggregate, { quantity }: Choice): FigureSpec | null {
  const q = data.quantities.indexOf(quantity);
  const above = data.above && { mean: data.above.mean[q], sd: data.above.sd[q] };
  if (!above || !hasData(above.mean)) return null;
  return {
    title: `${lead(data)}share of the rows with a drift of ${QUANTITY_NAMES[quantity]} above a threshold`,
    key: `${data.name}${data.runs}${quantity}`,
    about: { quantity },
    x: {
      name: "threshold",
      count: data.thresholds.length,
      tick: (i) => String(data.thresholds[i]),
    },
    y: { name: "layer", count: data.layers },
    value: (x, y) => above.mean[y][x],
    colour: cividis,
    legend: {
      kind: "scale",
      name: "share of the rows",
      range: { from: 0, to: 1, log: false },
      colour: cividis,
      ticks: [
        [0, "0 %"],
        [0.5, "50 %"],
        [1, "100 %"],
      ],
    },
    unit: "share of the rows",
    words: (x, y) => {
      const share = shareOfRows(above.mean[y][x], above.sd[y][x]);
      return `Layer ${y + 1}, drift above ${data.thresholds[x]}: ${share}`;
    },
    height: Math.max(40 + 18 * data.layers, 180),
  };
}

/** Mean and deviation of a similarity by kind, layer and part. */
function similarityOf(
  data: Aggregate,
  { quantity, part }: Choice,
): { mean: (number | null)[][]; sd: (number | null)[][] } | null {
  const kind = Math.max(data.kinds.indexOf(quantity), 0);
  const found: Spread<(number | null)[][][][]> | undefined = data.similarity;
  if (!found || !hasData(found.mean)) return null;
  const of = (values: (number | null)[][][][]): (number | null)[][] =>
    values[kind].map((layer) => layer[part]);
  return { mean: of(found.mean), sd: of(found.sd) };
}

/** The name of K or V, of which the similarity is known: K if another quantity is chosen. */
function kindName(data: Aggregate, { quantity }: Choice): string {
  return data.kinds.includes(quantity) ? quantity : data.kinds[0];
}

function similarityFigure(
  data: Aggregate,
  choice: Choice,
  pickLayer: (layer: number) => void,
): FigureSpec | null {
  const found = similarityOf(data, choice);
  if (!found) return null;
  const [kind, part] = [kindName(data, choice), data.parts[choice.part]];
  return {
    title: `${lead(data)}${QUANTITY_NAMES[kind]} of two steps of the ${part}, layer by distance`,
    key: [data.name, data.runs, kind, part].join(),
    about: { quantity: kind },
    x: { name: "distance in steps", count: found.mean[0].length },
    y: { name: "layer", count: data.layers },
    value: (x, y) => found.mean[y][x],
    colour: (value) => cividis(decade(value)),
    legend: { ...DRIFT_SCALE, name: "mean 1 − cosine" },
    unit: "mean 1 - cosine",
    words: (x, y) => {
      const far = plusMinus(found.mean[y][x], found.sd[y][x]);
      return `Layer ${y + 1}, ${plural(x + 1, "step")} apart: 1 − cosine ${far}`;
    },
    pick: (_, y, pin) => pin && pickLayer(y),
    at: { x: null, y: choice.layer },
    height: Math.max(40 + 18 * data.layers, 180),
  };
}

function distanceFigure(data: Aggregate, choice: Choice): PlotSpec | null {
  const found = similarityOf(data, choice);
  const layer = Math.min(choice.layer, data.layers - 1);
  if (!found || !hasData(found.mean[layer])) return null;
  const [kind, part] = [kindName(data, choice), data.parts[choice.part]];
  const row = { mean: found.mean[layer], sd: found.sd[layer] };
  const xs = placesOf(row.mean.length);
  const series = band("mean of the pairs of steps", xs, row, 0);
  return {
    title: `${lead(data)}${QUANTITY_NAMES[kind]} of two steps of the ${part} in layer ${layer + 1}, by distance`,
    about: { quantity: kind, layer },
    x: { name: "distance in steps", from: 0.5, to: xs.length + 0.5, whole: true },
    y: logAxis("1 − cosine", series),
    series,
    height: 220,
    words: (x) => {
      const i = stepAt(x, xs.length);
      return `${plural(i + 1, "step")} apart: 1 − cosine ${plusMinus(row.mean[i], row.sd[i])}`;
    },
  };
}

function errorFigure(data: Aggregate): PlotSpec | null {
  const { error } = data;
  if (!error || !hasData(error.mean)) return null;
  const xs = placesOf(data.layers);
  const series = data.sites.flatMap((site, i) => {
    const [colour, dash] = LOOKS[i];
    const ys = error.mean[i];
    const name = QUANTITY_NAMES[site];
    return [
      { name, colour, dash, xs, ys },
      { name: "", table: null, kind: "points" as const, colour, size: 3, xs, ys },
    ];
  });
  const flips = plusMinus(data.flips?.mean ?? null, data.flips?.sd ?? null);
  return {
    title: `${lead(data)}error against exact by layer, mean of the probed rows; share of changed best tokens ${flips}`,
    x: layerAxis(data.layers),
    y: logAxis("1 − cosine", series),
    series,
    height: 240,
    words: (x) => {
      const layer = layerAt(x, data.layers);
      const parts = data.sites.map((site, i) => {
        const far = plusMinus(error.mean[i][layer], error.sd[i][layer]);
        return `${QUANTITY_NAMES[site]} ${far}`;
      });
      return `Layer ${layer + 1}: ${parts.join(", ")}`;
    },
  };
}

function lengthFigure(data: Aggregate): PlotSpec | null {
  const guided = data.accepted.length > 0;
  const counts = guided ? data.accepted : data.committed;
  const total = counts.reduce((sum, n) => sum + n, 0);
  if (!total) return null;
  const xs = counts.map((_, i) => i);
  const ys = counts.map((n) => (100 * n) / total);
  const what = guided ? "accepted length of each draft" : "tokens committed in each step";
  const mean = counts.reduce((sum, n, i) => sum + i * n, 0) / total;
  const words = guided ? "tokens accepted" : "tokens committed";
  return {
    title: `${lead(data)}${what}, mean ${mean.toFixed(2)}`,
    x: { name: words, from: -0.5, to: counts.length - 0.5, whole: true },
    y: { name: "% of the steps", from: 0, to: Math.max(...ys) * 1.08 },
    series: [{ name: what, kind: "bars", colour: LOOKS[0][0], xs, ys, wide: 0.8 }],
    height: 200,
    words: (x) => {
      const i = Math.min(Math.max(Math.round(x), 0), counts.length - 1);
      return `${i} ${words}: ${number(counts[i])} of ${plural(total, "step")}`;
    },
  };
}
