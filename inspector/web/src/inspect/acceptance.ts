/** The charts of a run with a guider. */
import { number, percent, plural } from "../base/format.ts";
import { inks } from "../figures/inks.ts";
import type { PlotSpec, Series } from "../figures/spec.ts";
import { placesOf, stepAt, stepAxis } from "./axes.ts";
import { NO_DATA } from "./codes.ts";
import type { Guided, GuidedPoints, GuiderTimes, Verdict } from "./guided.ts";
import type { Panel } from "./panel.ts";
import type { Ruling } from "./ruling.ts";

/** The verdict on a position in a step. */
export type Rule = (step: number, position: number) => Ruling;

const GREEN = "#009e73";
const VERDICT_POINTS: readonly {
  name: string;
  verdicts: readonly Verdict[];
  colour: string;
  mark?: "cross";
}[] = [
  { name: "accepted", verdicts: ["accepted", "stop"], colour: GREEN },
  { name: "agreed, after the mismatch", verdicts: ["agreed"], colour: "#56b4e9" },
  {
    name: "not agreed",
    verdicts: ["mismatch", "refused", "fallback"],
    colour: "#d55e00",
    mark: "cross",
  },
];

/** Show a chart over the steps of the run. */
function showSteps(panel: Panel, figure: string, chart: Omit<PlotSpec, "x" | "at" | "pick">): void {
  const { frame, spot } = panel;
  panel.figure(figure).show({
    x: stepAxis(frame.steps, frame.first),
    at: panel.number(spot.step),
    pick: (x, _, pin) => panel.pick({ step: stepAt(x, frame.steps, frame.first) }, pin),
    ...chart,
  });
}

/** The tokens accepted in each step, and their mean so far. */
export function acceptanceRate(panel: Panel, data: Guided): void {
  const { steps, first } = panel.frame;
  const xs = placesOf(steps, first);
  const [taken, mean] = [Array.from(data.accepted.values), Array.from(data.mean.values)];
  const [drafted, fallback] = [data.drafted.values, data.fell_back.values];
  const fell = xs.filter((x) => fallback[x - first - 1] > 0);
  const most = Math.max(1, ...taken);
  const { mark } = inks(panel.root);
  panel.figure("guider-rate").root.classList.add("ds-wide");
  showSteps(panel, "guider-rate", {
    title: "Tokens accepted in each step, and their mean so far",
    y: { name: "tokens", from: 0, to: most * 1.08, whole: true },
    series: [
      { name: "accepted", kind: "bars", colour: GREEN, xs, ys: taken, wide: 0.9 },
      {
        name: "none: the fallback's one token",
        kind: "points",
        mark: "cross",
        colour: mark,
        size: 4,
        xs: fell,
        ys: fell.map(() => Math.min(1, most)),
      },
      { name: "mean so far", colour: mark, dash: [6, 3], xs, ys: mean },
    ],
    words: (x) => {
      const s = stepAt(x, steps, first);
      const so = Number.isNaN(mean[s]) ? "" : `, ${mean[s].toFixed(2)} per draft so far`;
      const tokens = plural(drafted[s], "drafted token");
      const found = drafted[s]
        ? `${taken[s]} of ${tokens} accepted`
        : fallback[s]
          ? "the guider's tokens cannot spell the draft, so the fallback's token was committed"
          : "nothing drafted";
      return `Step ${panel.number(s)}: ${found}${so}`;
    },
    height: 190,
  });
}

/** The number of steps by tokens accepted, and the share of steps with at least so many. */
export function acceptanceLengths(panel: Panel, data: Guided): void {
  const counts = Array.from(data.histogram.values);
  const survival = Array.from(data.survival.values);
  const near = (x: number): number => Math.min(Math.max(Math.round(x), 0), counts.length - 1);
  const x = { name: "tokens accepted", from: -0.5, to: counts.length - 0.5, whole: true };
  const xs = counts.map((_, j) => j);
  const colour = inks(panel.root).b;
  panel.figure("guider-histogram").show({
    title: "Steps by the number of tokens accepted",
    x,
    y: { name: "steps", from: 0, to: Math.max(...counts) * 1.08, whole: true },
    series: [{ name: "steps", kind: "bars", colour: GREEN, xs, ys: counts }],
    words: (k) => plural(counts[near(k)], "step") + " accepted " + plural(near(k), "token"),
    height: 220,
  });
  panel.figure("guider-survival").show({
    title: "Survival: share of drafts of which at least j tokens were accepted",
    x: { ...x, name: "j" },
    y: { name: "share", from: 0, to: 1.02 },
    series: [
      { name: "S(j) = Pr(k ≥ j)", colour, xs, ys: survival },
      { name: "", table: null, kind: "points", colour, size: 3.5, xs, ys: survival },
    ],
    words: (j) => survivalWords(survival[near(j)], near(j)),
    height: 220,
  });
}

/** The share of the drafts of which at least so many tokens were accepted, in words. */
export function survivalWords(share: number, tokens: number): string {
  const were = tokens === 1 ? "was" : "were";
  return `In ${percent(share)} of the drafts at least ${plural(tokens, "token")} ${were} accepted`;
}

/** Drafted tokens of one kind of verdict, at (diffusion model's, guider's) probability. */
interface Points extends Series {
  xs: number[];
  ys: number[];
  /** The row of the draft of each point. */
  rows: number[];
}

const POINTS = new WeakMap<GuidedPoints, Points[]>();

type PointRules = Pick<Guided, "names" | "accepted">;

/** The points of a run. An end of text that the fallback committed was not accepted. */
export function makePoints({ names, accepted }: PointRules, data: GuidedPoints): Points[] {
  const groups = VERDICT_POINTS.map(({ name, colour, mark }): Points => {
    return { name, colour, mark, kind: "points", size: 4, alpha: 0.75, xs: [], ys: [], rows: [] };
  });
  for (let row = 0; row < data.draft_step.values.length; row++) {
    const code = data.verdict.values[row];
    const p = data.draft_p_g.values[row];
    if (code === NO_DATA || Number.isNaN(p)) continue;
    const forced = names[code] === "stop" && accepted.values[data.draft_step.values[row]] === 0;
    const verdict = forced ? "fallback" : names[code];
    const group = VERDICT_POINTS.findIndex(({ verdicts }) => verdicts.includes(verdict));
    if (group < 0) continue;
    groups[group].xs.push(data.draft_p_f.values[row]);
    groups[group].ys.push(p);
    groups[group].rows.push(row);
  }
  return groups;
}

/** The points of a run, in the order of the legend. */
function pointsOf(rules: PointRules, data: GuidedPoints): Points[] {
  const points = POINTS.get(data) ?? makePoints(rules, data);
  POINTS.set(data, points);
  return points;
}

/** The row of the draft whose point is next to a place; -1 if there is none. */
function nearestRow(groups: readonly Points[], x: number, y: number): number {
  let [best, row] = [Infinity, -1];
  for (const group of groups) {
    group.xs.forEach((px, i) => {
      const far = (px - x) ** 2 + (group.ys[i] - y) ** 2;
      if (far < best) [best, row] = [far, group.rows[i]];
    });
  }
  return row;
}

/** The title of the scatter of the tokens of one drafting step out of `every`. */
export function scatterTitle(every: number): string {
  const steps = `one drafting step out of ${every}`;
  const which = every > 1 ? `each token drafted in ${steps}` : "each drafted token";
  return `Probability of ${which}: by the diffusion model and by the guider`;
}

/**
 * Both probabilities of each drafted token; hidden if they were not recorded. `rule` is null while
 * there is no map of the verdicts.
 */
export function acceptanceScatter(panel: Panel, data: Guided, rule: Rule | null): void {
  const figure = panel.figure("guider-scatter");
  figure.root.hidden = !data.recorded;
  if (!data.recorded) return;
  const query = { view: "guider", part: "points" };
  const found = panel.parts<{ drafts: GuidedPoints }>(figure, { drafts: query });
  if (!found) return;
  const { drafts } = found;
  const points = pointsOf(data, drafts);
  const [steps, positions] = [drafts.draft_step.values, drafts.draft_position.values];
  figure.show({
    title: scatterTitle(drafts.every),
    x: { name: "diffusion model", from: 0, to: 1 },
    y: { name: "guider", from: 0, to: 1 },
    series: points,
    words: (x, y) => {
      const row = nearestRow(points, x, y);
      if (row < 0) return "No drafted token has both probabilities.";
      return rule?.(steps[row], positions[row]).short() ?? "No verdict was read.";
    },
    pick: (x, y, pin) => {
      const row = nearestRow(points, x, y);
      if (row >= 0 && pin) panel.pick({ step: steps[row], position: positions[row] }, true);
    },
    square: 420,
  });
}

/** The tokens per draft that offset the guider's cost; `time` is null if the run has no times. */
export function acceptanceBreakEven(panel: Panel, data: Guided, time: GuiderTimes | null): void {
  const { steps, first } = panel.frame;
  const xs = placesOf(steps, first);
  const lines: { name: string; colour: string; dash: number[]; ys: number[] }[] = [
    {
      name: "reached: tokens per draft so far",
      colour: inks(panel.root).b,
      dash: [],
      ys: Array.from(data.reached.values),
    },
    {
      name: "needed, by FLOPs",
      colour: "#d55e00",
      dash: [7, 3],
      ys: Array.from(data.needed.values),
    },
  ];
  if (time && time.needed.shape[0] === steps) {
    const ys = Array.from(time.needed.values);
    lines.push({ name: "needed, by the clock", colour: "#cc79a7", dash: [2, 3], ys });
  }
  const most = Math.max(2, ...lines.flatMap(({ ys }) => ys.filter(Number.isFinite)));
  showSteps(panel, "guider-even", {
    title: "Break-even: tokens per draft needed to offset the guider's cost, and reached",
    y: { name: "tokens per draft", from: 0, to: most * 1.06 },
    series: lines.map((line) => ({ ...line, xs })),
    words: (x) => {
      const s = stepAt(x, steps, first);
      const parts = lines.map(({ name, ys }) => name.split(":")[0] + " " + number(ys[s], 2));
      return `Up to step ${panel.number(s)}: ` + parts.join("; ");
    },
    height: 260,
  });
}
