import { cividis } from "../../base/colours.ts";
import { write } from "../../base/dom.ts";
import { chance, plural } from "../../base/format.ts";
import { inks } from "../../figures/inks.ts";
import { at } from "../arrays.ts";
import { overLayers, placesOf } from "../axes.ts";
import {
  DRIFT,
  DRIFT_COLOURS,
  DRIFT_SCALE,
  NO_DATA,
  decade,
  driftColour,
  driftText,
} from "../codes.ts";
import type { Panel } from "../panel.ts";
import { isDone, planOfStep, type PlanBits } from "../plans.ts";
import {
  meanErrors,
  predictions,
  predictionWords,
  probedPredictions,
  PROBES,
  type Bound,
  type ErrorData,
  type MeanErrors,
  type Prediction,
  type ProbedPredictions,
  type Recall,
} from "../probes.ts";
import { drawProbedSteps, nearest } from "../probed_steps.ts";
import { SITE_OPTIONS } from "../quantities.ts";
import { SITES } from "../sites.ts";
import type { Query } from "../slice.ts";
import { isWhole, viewOf, type Frame } from "../view.ts";

/** The probed step next to the cursor, and the layer and site that are shown. */
interface Scene {
  panel: Panel;
  data: ErrorData;
  frame: Frame;
  steps: number[];
  /** Index of the probed step. */
  probe: number;
  site: number;
  /** The name of the site. */
  name: string;
  layer: number;
  /** The probed step, as the head of titles. */
  shown: string;
}

/** The error of the values used, against a network that reuses nothing. */
export const error = viewOf<ErrorData>({
  title: "Error against exact",
  level: "probe",
  source: PROBES,
  about:
    "At the probed steps the network also ran without any reuse on the same canvas: the exact pass. The map shows 1 − cosine between the value that the run used and the exact one, for every row in the forward. Underlined rows were reused. " +
    "The other figures show how much the predictions differ, and how well the rows to recompute were chosen. Recall@k: k of the rows that could be reused (with a cached value, and no refresh of their whole region due) were recomputed; recall is the share of these k rows that are among the k rows with the largest error of the cached value. " +
    "With DARE, the quantity that bounds its error is compared with the true error.",
  controls: [{ name: "site", label: "Error of", value: "2", options: SITE_OPTIONS }],
  draw(panel, data) {
    const scene = sceneOf(panel, data);
    drawSteps(scene);
    drawRows(scene);
    drawMeans(scene);
    drawRecall(scene);
    drawPredictions(scene);
    drawBound(scene);
  },
});

function sceneOf(panel: Panel, data: ErrorData): Scene {
  const { step, layer } = panel.spot;
  const steps = Array.from(data.step.values);
  const probe = nearest(steps, step);
  const site = Number(panel.choice("site"));
  const shown = `Step ${panel.number(steps[probe])}`;
  return {
    panel,
    data,
    frame: panel.frame,
    steps,
    probe,
    site,
    name: SITE_OPTIONS[site][1],
    layer,
    shown,
  };
}

function drawSteps({ panel, steps, probe, data }: Scene): void {
  drawProbedSteps(panel, steps, probe);
  const [flipped, count] = [data.flips, data.count].map(({ values }) =>
    Array.from(values).reduce((sum, n) => sum + n, 0),
  );
  const predictions = plural(count, "prediction");
  const worst = chance(Math.max(0, ...data.worst_tv.values));
  const found = count
    ? `${flipped} of ${predictions} had another most likely token than the exact pass; the largest total variation was ${worst}`
    : "no token was predicted";
  write(
    panel.block("sum", "p", "ds-wide"),
    `Over the ${plural(steps.length, "probed step")}, ${found}. The figures show the probed step nearest to the cursor.`,
  );
}

function drawRows({ panel, frame, steps, probe, site, layer, name, shown }: Scene): void {
  const figure = panel.figure("error-rows");
  const step = steps[probe];
  figure.root.classList.add("ds-wide");
  const map = panel.map({
    figure: "error-rows",
    query: { view: "error", part: "map", probe, quantity: SITES[site] },
    rows: ["layer", frame.layers],
    columns: ["position", frame.positions],
  });
  const found = panel.parts<{ plan: PlanBits }>(figure, { plan: planOfStep(step) });
  if (!map || !found) return;
  const code = (x: number, l: number): number => map.at(l, x);
  const done = (x: number, l: number): boolean => isDone(found.plan, l, site, x);
  figure.show({
    title: `${shown}: error of the ${name}, layer by position`,
    key: ["rows", map.key].join(),
    x: panel.positions(),
    y: { name: "layer", count: frame.layers },
    value: (x, y) => (code(x, y) === NO_DATA ? null : code(x, y)),
    ...map.drawn(DRIFT_COLOURS),
    about: { quantity: SITES[site] },
    colour: driftColour,
    under: (x, y) => !done(x, y),
    underName: "reused",
    legend: DRIFT_SCALE,
    blank: isWhole(frame, SITES[site])
      ? "no data: not in the forward of this step"
      : "no data: not in the forward of this step, or not recorded",
    unit: "1 - cosine",
    plain: (drift) => DRIFT[drift],
    words: (x, y) => {
      const place = `Position ${x + 1}, ${panel.text(x, step)}, layer ${y + 1}, step ${panel.number(step)}`;
      return `${place}: error of the ${name} ${map.words(y, x)}${errorText(code(x, y), done(x, y), isWhole(frame, SITES[site]))}`;
    },
    pick: (x, y, pin) => panel.pick({ position: x, layer: y }, pin),
    at: { x: panel.cursor.position, y: layer },
    height: 300,
  });
}

function errorText(code: number, done: boolean, whole: boolean): string {
  if (code === NO_DATA) return whole ? "none, the row was not in the forward" : "none was recorded";
  return `${driftText(code, whole)} (${done ? "recomputed" : "reused"})`;
}

function drawMeans({ panel, frame, steps, probe, site, layer, name }: Scene): void {
  const figure = panel.figure("error-means");
  const found = panel.parts<{ means: MeanErrors }>(figure, { means: meanErrors(site) });
  if (!found) return;
  const mean = (x: number, l: number): number => at(found.means.mean, x, l);
  const text = (value: number): string =>
    Number.isNaN(value)
      ? isWhole(frame, SITES[site])
        ? "none, no row was in the forward"
        : "none was recorded"
      : value.toPrecision(2);
  figure.show({
    title: `Mean error of the ${name} over the rows in the forward: layer by probed step`,
    key: ["means", site, panel.cursor.lane, panel.inspector.key].join(),
    about: { quantity: SITES[site] },
    x: { name: "probed step", count: steps.length, tick: (i) => String(panel.number(steps[i])) },
    y: { name: "layer", count: frame.layers },
    value: (x, y) => (Number.isNaN(mean(x, y)) ? null : mean(x, y)),
    colour: (value) => cividis(decade(value)),
    legend: { ...DRIFT_SCALE, name: "mean 1 − cosine" },
    unit: "mean 1 - cosine",
    words: (x, y) =>
      `Step ${panel.number(steps[x])}, layer ${y + 1}: mean error of the ${name} ${text(mean(x, y))}`,
    pick: (x, y, pin) => panel.pick({ step: steps[x], layer: y }, pin),
    at: { x: probe, y: layer },
    height: 280,
  });
}

function drawRecall({ panel, frame, steps, probe, site, name, shown }: Scene): void {
  const figure = panel.figure("error-recall");
  const query = { view: "error", part: "recall", quantity: SITES[site] };
  const found = panel.parts<{ rows: Recall }>(figure, { rows: query });
  if (!found) return;
  const { recall, chance } = found.rows;
  const xs = placesOf(frame.layers);
  const here = xs.map((x) => at(recall, probe, x - 1));
  const blind = xs.map((x) => at(chance, probe, x - 1));
  const mean = xs.map((x) => knownMean(steps.map((_, e) => at(recall, e, x - 1))));
  const none = here.every(Number.isNaN)
    ? " (no data: all or none of the reusable rows were recomputed)"
    : "";
  figure.show({
    about: { quantity: SITES[site] },
    title: `${shown}: recall@k of the recomputed rows, ${name}${none}`,
    y: { name: "recall@k", from: 0, to: 1 },
    series: [
      { name: "this step", colour: "#0072b2", xs, ys: here },
      { name: "", table: null, kind: "points", colour: "#0072b2", size: 4, xs, ys: here },
      { name: "mean of the probed steps", colour: "#e69f00", dash: [6, 3], xs, ys: mean },
      {
        name: "a random choice of k rows",
        colour: inks(panel.root).ink,
        dash: [2, 3],
        xs,
        ys: blind,
      },
    ],
    ...overLayers(panel, (l) => {
      const [now, all, random] = [here[l], mean[l], blind[l]].map(recallText);
      return `Layer ${l + 1}: recall ${now} in this step, ${all} on average, ${random} for a random choice`;
    }),
    height: 280,
  });
}

/** The mean of the values that are not NaN; NaN if there are none. */
export function knownMean(values: readonly number[]): number {
  const known = values.filter((value) => !Number.isNaN(value));
  return known.length ? known.reduce((sum, value) => sum + value, 0) / known.length : NaN;
}

/** A recall as text; it reads as 0 or 1 only if it is. */
export function recallText(recall: number): string {
  return Number.isNaN(recall) ? "no data" : chance(recall, 2);
}

function drawPredictions({ panel, frame, data, probe, shown }: Scene): void {
  const figure = panel.figure("error-tv");
  const note = panel.block("flips", "p");
  const list = panel.parts<{ rows: ProbedPredictions }>(figure, { rows: probedPredictions(probe) });
  if (!list) return;
  const found = predictions(list.rows, frame.prompt);
  const flips = found.filter(({ flip }) => flip);
  drawVariation(panel, found, shown);
  if (!found.length) {
    write(note, `${shown}: no token was predicted.`);
    return;
  }
  const mean = data.mean_tv.values[probe];
  const size = Number.isNaN(mean) ? "–" : chance(mean);
  const head = `${shown}: ${plural(found.length, "prediction")}, mean total variation ${size}. `;
  const named = flips.slice(0, 8).map(predictionWords).join("; ") + (flips.length > 8 ? "; …" : "");
  const tail = flips.length
    ? `${plural(flips.length, "most likely token")} would differ: ${named}.`
    : "All most likely tokens are those of the exact pass.";
  write(note, head + tail);
}

function drawVariation(panel: Panel, found: readonly Prediction[], shown: string): void {
  const { frame, cursor } = panel;
  const shownPlaces = found.map(({ place }) => place + 1);
  const near = (x: number): Prediction | undefined => found.at(nearest(shownPlaces, x));
  const part = (list: readonly Prediction[]): { xs: number[]; ys: number[] } => ({
    xs: list.map(({ place }) => place + 1),
    ys: list.map(({ tv }) => tv),
  });
  const [same, flips] = [false, true].map((wanted) => found.filter(({ flip }) => flip === wanted));
  const colour = "#0072b2";
  const { differs } = inks(panel.root);
  const place = cursor.position === null ? -1 : cursor.position - frame.prompt;
  panel.figure("error-tv").show({
    title: `${shown}: total variation between the run's prediction and the exact one, by answer token`,
    x: {
      name: "answer token",
      from: 0.5,
      to: frame.positions - frame.prompt + 0.5,
      whole: true,
    },
    y: { name: "total variation", from: 0, to: 1 },
    series: [
      { name: "same most likely token", kind: "points", colour, size: 3, ...part(same) },
      { name: "", table: null, kind: "bars", colour, wide: 0.6, ...part(found) },
      {
        name: "different most likely token",
        kind: "points",
        colour: differs,
        size: 5,
        ...part(flips),
      },
    ],
    at: place < 0 ? null : place + 1,
    words: (x) => {
      const one = near(x);
      return one ? predictionWords(one) : "Nothing was predicted in this step";
    },
    pick: (x, _, pin) => {
      const one = near(x);
      if (one) panel.pick({ position: frame.prompt + one.place }, pin);
    },
    height: 280,
  });
}

function boundOf(layer: number): Query {
  return { view: "error", part: "bound", layer };
}

/** Draw what bounds the error of each layer, and the error. */
export function drawBound({ panel, data, frame, probe, shown }: Scene): void {
  const figure = panel.figure("error-bound");
  figure.root.hidden = !data.bounded;
  write(
    panel.block("bound", "p"),
    data.bounded
      ? "DARE bounds a layer's error, up to constants, by the summed drift of the queries of reused rows since they were last recomputed. Drifts are recorded in classes, the first from 0 to 0.000015, so the exact sum is between the two dashed lines."
      : "DARE's bound is not shown: it needs the drift of the queries of reused rows, which this run's method does not compute.",
  );
  if (!data.bounded) return;
  const xs = placesOf(frame.layers);
  const queries = xs.map((x): [string, Query] => [String(x), boundOf(x - 1)]);
  const found = panel.parts<Record<string, Bound>>(figure, Object.fromEntries(queries));
  if (!found) return;
  const bounds = xs.map((x) => found[x]);
  const [least, most] = [0, 1].map((end) => bounds.map(({ proxy }) => at(proxy, probe, end)));
  const exact = bounds.map((bound) => at(bound.true, probe));
  const lines = [
    { name: "summed query drift, at least", colour: "#e69f00", dash: [6, 3], xs, ys: least },
    { name: "at most", colour: "#d55e00", dash: [2, 3], xs, ys: most },
    { name: "true error of the attention output", colour: "#0072b2", dash: [], xs, ys: exact },
  ];
  figure.show({
    title: `${shown}: DARE's proxy and the true error, means over rows of √(s / (2 − s)), s = 1 − cosine`,
    y: {
      name: "√(s / (2 − s))",
      from: 1e-4,
      to: 10,
      log: true,
      tick: (v) => (v < 2e-4 ? "≤ 10⁻⁴" : String(+v.toPrecision(1))),
    },
    series: lines.flatMap((line) => [
      line,
      { ...line, name: "", table: null, kind: "points" as const, dash: undefined, size: 3.5 },
    ]),
    ...overLayers(panel, (l) => {
      const [low, high, error] = [least[l], most[l], exact[l]].map((v) => v.toPrecision(2));
      return `Layer ${l + 1}: proxy ${low} to ${high}, true error ${error}`;
    }),
    height: 280,
  });
}
