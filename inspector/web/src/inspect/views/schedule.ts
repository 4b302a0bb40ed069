import { cividis, type Rgb } from "../../base/colours.ts";
import { write } from "../../base/dom.ts";
import { percent, plural } from "../../base/format.ts";
import { inks } from "../../figures/inks.ts";
import { at, type NdArray } from "../arrays.ts";
import { laneSeries, stepAt, stepAxis } from "../axes.ts";
import type { Panel } from "../panel.ts";
import { SITE_OPTIONS } from "../quantities.ts";
import { planeCodes } from "../planes.ts";
import { SITES, SITE_WORDS } from "../sites.ts";
import { rowsDone, type RowsDone } from "../plans.ts";
import { hasPlans, viewOf } from "../view.ts";
import { shareScale } from "../probability.ts";

/** What a run recomputed and what was planned. */
export interface ScheduleData {
  /** Kinds by step and region, as planned: no steps if the trace has no plans. */
  planned: NdArray;
  /** Kinds by step and region, as done. */
  done: NdArray;
  /** The steps and regions in which the two differ: [count, 2]. */
  differs: NdArray;
  /** Percentage of token-layers recomputed up to each step. */
  running: NdArray;
}

/** Share of a region's token-layers recomputed [steps, 3]; NaN for an empty region. */
interface Portions {
  portion: NdArray;
}

const KINDS = { view: "schedule", part: "kinds" };

/** Name, colour and glyph of each kind of step, in the order of `engine.core.events.KINDS`. */
const KIND_LOOKS: readonly (readonly [string, Rgb, string])[] = [
  ["full", [0, 114, 178], "●"],
  ["partial", [86, 180, 233], "◐"],
  ["reuse", [240, 228, 66], "○"],
  ["frozen", [158, 165, 175], "✱"],
];
const KIND_COLOURS = KIND_LOOKS.map(([, colour]) => colour);
const REGION_WORDS = ["prompt", "current block", "rest of the answer"];
const REGION_TICKS = ["prompt", "block", "rest"];
const PART_SCALE = shareScale("share of rows recomputed");

/** What each step recomputed, as planned and as done. */
export const schedule = viewOf<ScheduleData>({
  title: "Refresh schedule",
  level: "steps",
  source: KINDS,
  about:
    "What each step recomputed of the prompt, the current block and the rest of the answer: as planned by the method's schedule (above) and as done (below). " +
    "Full: the four values (K, V and both outputs) of all rows in every layer. Partial: some of them. Reuse: none. Frozen: none, in this and all later steps. A row belongs to the region of the token that it predicts. " +
    "The other figures show the share of rows recomputed in each layer, and over the run.",
  controls: [
    {
      name: "site",
      label: "Share of",
      value: "mean",
      options: [["mean", "all four (mean)"], ...SITE_OPTIONS],
    },
  ],
  draw(panel, data) {
    drawKinds(panel, data);
    write(
      panel.block("differs", "p", "ds-wide"),
      scheduleSentence(data, panel.frame.steps, panel.frame.first),
    );
    drawLayers(panel);
    drawRunning(panel);
  },
});

function drawKinds(panel: Panel, data: ScheduleData): void {
  const { inspector, cursor } = panel;
  const recorded = data.planned.shape[0] > 0;
  const figure = panel.figure("schedule-kinds");
  figure.root.classList.add("ds-wide");
  figure.show({
    title: "Step by region: planned above the line, done below",
    key: "kinds" + cursor.lane + inspector.key,
    left: 108,
    x: panel.steps(),
    y: {
      name: "region",
      count: 6,
      tick: (i) => (i > 2 ? "done: " : "planned: ") + REGION_TICKS[i % 3],
      marks: [{ at: 3, strong: true }],
    },
    value: (step, row) => {
      if (row > 2) return at(data.done, step, row - 3);
      return recorded ? at(data.planned, step, row) : null;
    },
    cells: () => ({ codes: kindCodes(data, panel.frame.steps), palette: KIND_COLOURS }),
    colour: (kind) => KIND_LOOKS[kind][1],
    glyph: (kind) => KIND_LOOKS[kind][2],
    legend: { items: KIND_LOOKS.map(([name, colour, glyph]) => [colour, name, glyph]) },
    unit: "kind",
    plain: (kind) => KIND_LOOKS[kind][0],
    words: (step, row) => regionWords(panel, data, step, row % 3),
    pick: (step, _, pin) => panel.pick({ step }, pin),
    at: { x: panel.spot.step, y: null },
    dots: Array.from(
      { length: data.differs.shape[0] },
      (_, i) => [at(data.differs, i, 0), at(data.differs, i, 1) + 3] as const,
    ),
    dotName: "done differs from planned",
    height: 190,
  });
}

/** The codes of the kinds: three rows as planned and three as done, of all steps. */
export function kindCodes({ planned, done }: ScheduleData, steps: number): Uint8Array {
  const codes = new Uint8Array(6 * steps).fill(KIND_LOOKS.length);
  [planned, done].forEach((kinds, part) => {
    if (!kinds.shape[0]) return;
    const plane = { rows: 1, columns: 0, at: [0, 0] };
    codes.set(planeCodes(kinds, plane), part * 3 * steps);
  });
  return codes;
}

function kindWords(data: ScheduleData, step: number, region: number): string {
  const names = (["planned", "done"] as const).map((which) => {
    const kinds = data[which];
    return `${which} ${kinds.shape[0] ? KIND_LOOKS[at(kinds, step, region)][0] : "not recorded"}`;
  });
  return names.join(", ");
}

/** What was planned and done in a region of a step, and the share of it that was recomputed. */
export function regionWords(
  panel: Panel,
  data: ScheduleData,
  step: number,
  region: number,
): string {
  const found = panel.partOrWords<Portions>({ view: "schedule", part: "portion" });
  const share = typeof found === "string" ? found : portionWords(at(found.portion, step, region));
  return `Step ${panel.number(step)}, ${REGION_WORDS[region]}: ${kindWords(data, step, region)}; ${share}`;
}

function portionWords(portion: number): string {
  if (Number.isNaN(portion)) return "an empty region";
  return percent(portion, 1) + " of its token-layers recomputed";
}

/** Whether the steps did what was planned, and where they first did not. */
export function scheduleSentence(data: ScheduleData, steps: number, first = 0): string {
  if (!data.planned.shape[0]) return "This trace has no planned schedule, only what was done.";
  const count = data.differs.shape[0];
  if (!count) return "Every step matched the planned schedule.";
  const [step, region] = [at(data.differs, 0, 0), at(data.differs, 0, 1)];
  return (
    `Done differs from planned in ${count} of ${3 * steps} cells; first in step ${first + step + 1}, ${REGION_WORDS[region]}: ${kindWords(data, step, region)}. ` +
    "The planned schedule depends only on the settings. Where rows are chosen by their values, all or none of them may be chosen."
  );
}

/** The share of a layer's rows recomputed in a step, at a site or as the mean of all four. */
export function siteShare(
  { done }: RowsDone,
  rows: number,
  site: string,
  step: number,
  layer: number,
): number {
  if (site !== "mean") return at(done, step, layer, Number(site)) / rows;
  const sum = SITE_WORDS.reduce((all, _, i) => all + at(done, step, layer, i), 0);
  return sum / (SITE_WORDS.length * rows);
}

function drawLayers(panel: Panel): void {
  const { frame, inspector, cursor, spot } = panel;
  const figure = panel.figure("schedule-layers");
  const found = panel.parts<{ plan: RowsDone }>(figure, { plan: rowsDone() });
  if (!found) return;
  const { plan } = found;
  const site = panel.choice("site");
  const name =
    site === "mean" ? "mean of K, V, attention and feed-forward" : SITE_OPTIONS[Number(site)][1];
  figure.show({
    title: `Share of all rows recomputed, ${name}: layer by step`,
    key: "layers" + site + cursor.lane + inspector.key,
    about: { quantity: site === "mean" ? site : SITES[Number(site)] },
    x: panel.steps(),
    y: { name: "layer", count: frame.layers },
    value: (step, layer) => siteShare(plan, frame.positions, site, step, layer),
    colour: cividis,
    legend: PART_SCALE,
    unit: "share of rows recomputed",
    words: (step, layer) => {
      const share = (i: number): number => siteShare(plan, frame.positions, String(i), step, layer);
      const shares = SITE_WORDS.map((text, i) => `${text} ${percent(share(i), 1)}`);
      const rows = plural(frame.positions, "row");
      return `Step ${panel.number(step)}, layer ${layer + 1}: ${shares.join(", ")} of ${rows} recomputed`;
    },
    pick: (step, layer, pin) => panel.pick({ step, layer }, pin),
    at: { x: spot.step, y: spot.layer },
    height: 260,
  });
}

/** Draw the running share of the lanes that took a step and have plans. */
export function drawRunning(panel: Panel): void {
  const { inspector } = panel;
  const colours = inks(panel.root);
  const lanes = inspector.store.started.flatMap(({ name }) => {
    const frame = inspector.frames[name];
    if (!frame?.steps || !hasPlans(frame)) return [];
    const data = panel.part<ScheduleData>(KINDS, name);
    const { before } = inspector.store.lanes[name];
    return data ? [{ name, before, ys: Array.from(data.running.values) }] : [];
  });
  panel.bothFigure("schedule-running").show({
    about: { lane: undefined },
    title: "Token-layers recomputed up to each step, as a share of those of all positions",
    x: stepAxis(Math.max(...lanes.map(({ ys, before }) => before + ys.length), 1)),
    y: { name: "% so far", from: 0, to: 100 },
    series: lanes.map(({ name, ys, before }) => laneSeries(name, ys, colours, before)),
    at: panel.number(panel.spot.step),
    words: (x) => {
      const parts = lanes.map(({ name, ys, before }) => {
        const step = stepAt(x, ys.length, before);
        const share = percent(ys[step] / 100, 1);
        return `Lane ${name.toUpperCase()}: ${share} after step ${before + step + 1}`;
      });
      return parts.join("; ");
    },
    pick: (x, _, pin) => panel.pick({ step: stepAt(x, panel.frame.steps, panel.frame.first) }, pin),
    height: 260,
  });
}
