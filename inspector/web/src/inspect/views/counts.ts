import { cividis, type Rgb } from "../../base/colours.ts";
import { write } from "../../base/dom.ts";
import { number, percent, plural } from "../../base/format.ts";
import type { About, ScaleLegend, Series } from "../../figures/spec.ts";
import { alike, nameOnAxis, overLayers, percentEnd, placesOf, stepAt, stepAxis } from "../axes.ts";
import { driftText } from "../codes.ts";
import {
  DriftCounts,
  firstCounted,
  limitOf,
  type BudgetRules,
  type CountData,
} from "../drift_counts.ts";
import { at, type NdArray } from "../arrays.ts";
import type { Panel } from "../panel.ts";
import { driftOfRows, rowsDone, singleRows, type RowDrifts, type RowsDone } from "../plans.ts";
import { QUANTITY_OPTIONS, ROWS_CONTROL } from "../quantities.ts";
import type { Query } from "../slice.ts";
import { codeUpTo, highest, inPercent, recordedOf, shareAbove, type Tally } from "../tally.ts";
import { isWhole, viewOf } from "../view.ts";

/** The scale of shares of rows, logarithmic from 0.1 %. */
export const SHARE_SCALE: ScaleLegend = {
  kind: "scale",
  name: "drifted",
  range: { from: 1e-3, to: 1, log: true },
  text: percent,
  colour: cividis,
  ticks: [
    [0, "≤ 0.1 %"],
    [1 / 3, "1 %"],
    [2 / 3, "10 %"],
    [1, "100 %"],
  ],
};
/** The colour of a share on this scale. */
export function shareColour(share: number): Rgb {
  return cividis(1 + Math.log10(Math.max(share, 1e-3)) / 3);
}
const DRIFTED = "drifted, of the evaluated rows";
const DRIFTED_COLOUR = "#0072b2";
const RECOMPUTED_COLOUR = "#009e73";
const BUDGET_COLOUR = "#d55e00";
const NAMED_ROWS = 5;

/** How many rows drift by more than a threshold, by layer and step. */
export const counts = viewOf<BudgetRules>({
  title: "Drift counts",
  level: "layers",
  source: { view: "why" },
  about:
    "A row is evaluated in a step that computes its value, if an earlier step did so too. The view shows the share of evaluated rows whose drift is above a threshold, by layer and step (SPA-Cache, figure 2). " +
    "In plain decoding every row is evaluated, and a budget per layer should follow this profile. In a cached run only the recomputed rows can be counted. " +
    "The charts also show the method's budget, if it has one, and the share of rows that was recomputed; which rows computed their query is not recorded.",
  controls: [
    { name: "quantity", label: "Quantity", value: "v", options: QUANTITY_OPTIONS },
    {
      name: "tau",
      label: "Threshold",
      min: -4,
      max: 0,
      step: 0.05,
      value: -1.3,
      words: (exponent) => `1 − cos > ${limitOf(exponent)}`,
    },
    ROWS_CONTROL,
  ],
  draw(panel, rules) {
    const choice = {
      quantity: panel.choice("quantity"),
      limit: limitOf(panel.amount("tau")),
      answer: panel.choice("rows") === "answer",
    };
    const sum = panel.block("sum", "p", "ds-wide");
    const from = firstCounted(panel.frame, rules, choice.answer);
    const data = countsOf(panel, choice.quantity, codeUpTo(choice.limit), from);
    if (!data) return;
    const found = new DriftCounts(data, panel.frame, rules, choice);
    write(sum, found.sentence());
    drawMap(panel, found);
    drawCharts(panel, found);
  },
});

/** The counts of the rows from a position on; null while the figures wait for them. */
function countsOf(panel: Panel, quantity: string, code: number, from: number): CountData | null {
  const rows: Query = { view: "drift", part: "counts", quantity, position_from: from || undefined };
  const queries = { seen: rows, above: { ...rows, code }, done: rowsDone(from) };
  const figures = FIGURES.map((name) => panel.figure(name));
  const found = panel.parts<{ seen: Counted; above: Counted; done: RowsDone }>(figures, queries);
  return found && { seen: found.seen.rows, above: found.above.rows, done: found.done.done };
}

const FIGURES = ["counts", "counts-layers", "counts-steps"];

/** Numbers of rows [steps, layers]. */
interface Counted {
  rows: NdArray;
}

function aboutOf({ quantity }: DriftCounts): About {
  return { quantity };
}

function drawMap(panel: Panel, found: DriftCounts): void {
  const { frame, cursor, spot } = panel;
  const figure = panel.figure("counts");
  figure.root.classList.add("ds-wide");
  figure.show({
    title: `Rows${found.where} with a drift of ${found.name} above ${found.limit}: layer by step`,
    key: [found.quantity, found.limit, found.from, cursor.lane, panel.inspector.key].join(),
    about: aboutOf(found),
    x: panel.stepCells(),
    y: { name: "layer", count: frame.layers },
    value: (step, layer) => shareAbove(found.table.at(step, layer)),
    colour: shareColour,
    legend: SHARE_SCALE,
    unit: "share of the evaluated rows",
    blank: "no row evaluated",
    words: (step, layer) => cellWords(panel, found, step, layer),
    pick: (step, layer, pin) => panel.pick({ step, layer }, pin),
    at: { x: spot.step, y: spot.layer },
    height: Math.min(Math.max(60 + 22 * frame.layers, 180), 460),
  });
}

function cellWords(panel: Panel, found: DriftCounts, step: number, layer: number): string {
  const cell = found.table.at(step, layer);
  const where = `Step ${panel.number(step)}, layer ${layer + 1}: `;
  if (!cell.seen) {
    const whole = isWhole(panel.frame, found.quantity);
    return where + (whole ? "no row with a previous value was evaluated" : "none was recorded");
  }
  const share = percent(shareAbove(cell));
  return (
    `${where}${cell.above} of ${plural(cell.seen, "row")} (${share}) above ${found.limit}` +
    largestWords(panel, found, step, layer)
  );
}

/** The rows with the largest drifts of a step and a layer; empty if single rows are not known. */
export function largestWords(
  panel: Panel,
  { quantity, from }: Pick<DriftCounts, "quantity" | "from">,
  step: number,
  layer: number,
): string {
  const { positions } = panel.frame;
  const drifts = panel.partOrWords<RowDrifts>(driftOfRows(quantity, step));
  if (typeof drifts === "string") return "; largest: " + drifts;
  const cells = singleRows(drifts);
  if (!cells) return "";
  const code = (position: number): number => at(cells, layer, position);
  const largest = highest(code, [from, positions], NAMED_ROWS).map(
    ({ code, position }) =>
      `position ${position + 1} ${panel.text(position, step)} ${driftText(code, true)}`,
  );
  return "; largest: " + largest.join(", ");
}

function drawCharts(panel: Panel, found: DriftCounts): void {
  const { byLayer, byStep } = found.table;
  const done = found.recomputed();
  const lines = [...(done?.layers ?? []), ...(found.budget()?.shares ?? [])];
  const [layerEnd, stepEnd] = alike(
    percentEnd(byLayer.map(shareAbove), lines),
    percentEnd(byStep.map(shareAbove), done?.steps ?? []),
  );
  drawLayers(panel, found, byLayer, layerEnd);
  drawSteps(panel, found, byStep, stepEnd);
}

/** A line of shares on an axis that ends at `end` %. */
function line(
  name: string,
  colour: string,
  shares: readonly (number | null)[],
  end: number,
  first = 0,
): Series {
  const xs = placesOf(shares.length, first);
  return { name: nameOnAxis(name, shares, end), colour, xs, ys: inPercent(shares) };
}

function bars(tallies: readonly Tally[], first = 0): Series {
  return {
    name: DRIFTED,
    kind: "bars",
    colour: DRIFTED_COLOUR,
    xs: placesOf(tallies.length, first),
    ys: inPercent(tallies.map(shareAbove)),
  };
}

function tallyWords(tally: Tally): string {
  const share = percent(shareAbove(tally));
  return `${number(tally.above)} of ${number(tally.seen)} rows drifted (${share})`;
}

/** "drifted and recomputed rows": those that a chart shows; `where` as `rowsWhere` gives it. */
export function rowsShown(budgeted: boolean, recomputed: boolean, where: string): string {
  const shown = [
    "drifted",
    ...(budgeted ? ["budgeted"] : []),
    ...(recomputed ? ["recomputed"] : []),
  ];
  return `${new Intl.ListFormat("en-GB").format(shown)} rows${where}`;
}

function drawLayers(
  panel: Panel,
  found: DriftCounts,
  drifted: readonly Tally[],
  end: number,
): void {
  const { name = "", layers: done = null } = found.recomputed() ?? {};
  const budget = found.budget();
  const series = [bars(drifted)];
  if (done) series.push(line(name, RECOMPUTED_COLOUR, done, end));
  if (budget) {
    series.push({ ...line(budget.name, BUDGET_COLOUR, budget.shares, end), dash: [6, 3] });
  }
  panel.figure("counts-layers").show({
    title: `Each layer, over all ${recordedOf(panel.frame)}steps: ${rowsShown(budget !== null, done !== null, found.where)}`,
    about: aboutOf(found),
    y: { name: "% of rows", from: 0, to: end },
    series,
    ...overLayers(panel, (l) => {
      const planned = budget ? ", budget " + percent(budget.shares[l]) : "";
      const share = done ? `, ${name} ${percent(done[l])}` : "";
      return `Layer ${l + 1}: ${tallyWords(drifted[l])}${share}${planned}`;
    }),
    height: 260,
  });
}

function drawSteps(panel: Panel, found: DriftCounts, drifted: readonly Tally[], end: number): void {
  const { steps, first } = panel.frame;
  const done = found.recomputed();
  const series: Series[] = [{ ...bars(drifted, first), wide: 0.9 }];
  if (done) {
    series.push({ ...line("recomputed", RECOMPUTED_COLOUR, done.steps, end, first), kind: "step" });
  }
  panel.figure("counts-steps").show({
    title: `Each step, over all ${recordedOf(panel.frame)}layers: ${rowsShown(false, done !== null, found.where)}`,
    about: aboutOf(found),
    x: stepAxis(steps, first),
    y: { name: "% of rows", from: 0, to: end },
    series,
    at: panel.number(panel.spot.step),
    words: (x) => {
      const s = stepAt(x, steps, first);
      const share = done ? `, recomputed ${percent(done.steps[s])}` : "";
      return `Step ${panel.number(s)}: ${tallyWords(drifted[s])}${share}`;
    },
    pick: (x, _, pin) => panel.pick({ step: stepAt(x, steps, first) }, pin),
    height: 260,
  });
}
