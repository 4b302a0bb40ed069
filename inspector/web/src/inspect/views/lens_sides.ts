/** The logit lens of both lanes beside each other, and where lane B leaves lane A. */
import type { Rgb } from "../../base/colours.ts";
import { write } from "../../base/dom.ts";
import { plural } from "../../base/format.ts";
import type { Figure } from "../../figures/figure.ts";
import { LANES } from "../../race/messages.ts";
import { overLayers, placesOf, shortened } from "../axes.ts";
import { LENS, tokenText, type LensData } from "../lens.ts";
import {
  canvasesApart,
  sharedTokens,
  tokensOf,
  turnCounts,
  turnedLayers,
  type LensPair,
} from "../lens_lanes.ts";
import type { Panel } from "../panel.ts";
import { drawProbedSteps, nearest } from "../probed_steps.ts";
import { commonSteps, type CommonStep } from "../step_pairs.ts";
import { drawPass, sceneOf, sharedLooks, type Scene } from "./lens_pass.ts";

const NAMED_TURNS = 8;
/** The values of the map: a pixel with several cells shows the smallest. */
const [OTHER, SAME] = [0, 1];
const COLOURS: readonly Rgb[] = [
  [84, 39, 136],
  [216, 218, 235],
];
const NAMES = ["another token in B", "the same token"];

/** Both lanes at a probed step that they have in common. */
interface Sides {
  /** The panel of the cursor's lane. */
  panel: Panel;
  a: Scene;
  b: Scene;
  pair: LensPair;
  /** The first layer, from 0, from which each answer token of B differs from A's; -1 for none. */
  turned: Int32Array;
  layers: number;
  /** Counted from 1. */
  stepNumber: number;
}

/** Draw the run's own pass of both lanes, and where and from which layer on their tokens differ. */
export function drawLensSides(panel: Panel): void {
  const both = ["lens-lanes", "lens-turns"].map((name) => panel.bothFigure(name));
  const [one, other] = LANES.map((lane) => lensOf(panel.of(lane), both));
  if (!one || !other) return drawProbedSteps(panel, [], 0); // not those of another run
  const { lanes } = panel.inspector.store;
  const common = commonSteps(
    { steps: Array.from(one.step.values), before: lanes.a.before },
    { steps: Array.from(other.step.values), before: lanes.b.before },
  );
  const problem = problemOf(panel, common);
  for (const name of ["sum", "turns"]) panel.block(name, "p", "ds-wide").hidden = Boolean(problem);
  if (problem) {
    drawProbedSteps(panel, [], 0);
    for (const lane of LANES)
      for (const figure of figuresOf(panel.of(lane), both)) figure.wait(problem);
    return;
  }
  const own = common.map(({ step }) => step - panel.lane.before);
  const chosen = nearest(own, panel.spot.step);
  drawProbedSteps(panel, own, chosen);
  const step = common[chosen];
  const [a, b] = LANES.map((lane) => {
    const [side, data] = [panel.of(lane), lane === "a" ? one : other];
    return sceneOf(side, data, step[lane], figuresOf(side, both), both);
  });
  for (const scene of [a, b]) if (scene) drawPass(scene, "run");
  if (!a?.ids || !b?.ids) return;
  const pair = { a: { ids: a.ids, places: a.places }, b: { ids: b.ids, places: b.places } };
  const layers = panel.frame.layers;
  const turned = turnedLayers(pair, layers);
  const sides: Sides = { panel, a, b, pair, turned, layers, stepNumber: step.step + 1 };
  drawWords(sides);
  drawLanes(sides);
  drawTurns(sides);
}

/** The figure of a lane, and those of both lanes. */
function figuresOf(side: Panel, both: readonly Figure[]): Figure[] {
  return [side.figure("lens-run"), ...both];
}

/** The probed steps of a lane; null if they are on their way, or missing, which its figures say. */
function lensOf(side: Panel, both: readonly Figure[]): LensData | null {
  const found = side.parts<{ lens: LensData }>(figuresOf(side, both), { lens: LENS });
  return found && found.lens;
}

/** Why the lanes cannot be compared; empty if they can. */
function problemOf(panel: Panel, common: readonly CommonStep[]): string {
  const { lanes, summary } = panel.inspector.store;
  if (summary?.apart) return summary.apart;
  if (lanes.a.start?.model !== lanes.b.start?.model)
    return "The lanes have different models, so their layers and tokens cannot be compared.";
  return common.length ? "" : "No step was probed in both lanes, so there is nothing to compare.";
}

function drawWords({ panel, a, b, turned, pair, layers, stepNumber }: Sides): void {
  const counts = turnCounts(pair, layers);
  const tokens = Array.from(turned).flatMap((layer, x) => (layer < 0 ? [] : [{ layer, x }]));
  const predictions = plural(counts.compared[layers - 1], "prediction");
  const apart = canvasesApart(
    { frame: a.panel.frame, step: a.step },
    { frame: b.panel.frame, step: b.step },
  );
  const cause = apart
    ? `The canvases already differ at ${plural(apart, "answer token")}, so that not every difference comes from reuse in this step.`
    : "Both lanes have the same canvas here, so that every difference comes from what B does in place of A's computation.";
  write(
    panel.block("sum", "p", "ds-wide"),
    `Step ${stepNumber}: both lanes have ${predictions}, and B gives another token than A in ${tokens.length} of them. ${cause}`,
  );
  const named = tokens.slice(0, NAMED_TURNS).map(({ layer, x }) => {
    const [mine, theirs] = textsAt({ a, b, pair }, layers - 1, x)!;
    return `answer token ${x + 1}: ${theirs} in place of ${mine}, different from layer ${layer + 1} on`;
  });
  const list = named.join("; ") + (tokens.length > NAMED_TURNS ? "; …" : "");
  write(
    panel.block("turns", "p", "ds-wide"),
    tokens.length ? `B differs from A at ${list}.` : "B differs from A at no answer token.",
  );
}

/** The best tokens of A and of B as texts; null unless both have one. */
function textsAt(
  { a, b, pair }: Pick<Sides, "a" | "b" | "pair">,
  layer: number,
  x: number,
): [string, string] | null {
  const found = tokensOf(pair, layer, x);
  if (!found || !a.ids || !b.ids) return null;
  return [tokenText(a.ids.pieces, found[0]), tokenText(b.ids.pieces, found[1])];
}

function drawLanes(sides: Sides): void {
  const { panel, a, b, pair, turned, stepNumber } = sides;
  const shared = sharedLooks(panel.cursor.lane === "a" ? a : b);
  const windows = LANES.map((lane) => pair[lane].ids.token_from); // the cursor may move them
  panel.bothFigure("lens-lanes").show({
    ...shared,
    x: shortened(shared.x, sharedTokens(pair)),
    title: `Step ${stepNumber}: where B's token differs from A's, layer by answer token`,
    key: [panel.inspector.key, a.probe, b.probe, ...windows].join(),
    value: (x, layer) => {
      const found = tokensOf(pair, layer, x);
      return found && (found[0] === found[1] ? SAME : OTHER);
    },
    colour: (value) => COLOURS[value],
    over: (x, layer) => {
      const found = tokensOf(pair, layer, x);
      return found !== null && found[0] !== found[1];
    },
    plain: (value) => NAMES[value],
    unit: "B compared with A",
    column: {
      name: "tokens of A / B",
      text: (x, layer) => textsAt(sides, layer, x)?.join(" / ") ?? null,
    },
    legend: {
      items: [
        [COLOURS[OTHER], NAMES[OTHER], "", "over"],
        [COLOURS[SAME], NAMES[SAME]],
      ],
    },
    blank: "not computed in both lanes",
    words: (x, layer) => cellWords(sides, x, layer),
    dots: Array.from(turned).flatMap((layer, x): [number, number][] =>
      layer < 0 ? [] : [[x, layer]],
    ),
    dotName: "another token than in A from here on",
  });
}

function cellWords(sides: Sides, x: number, layer: number): string {
  const { turned, stepNumber } = sides;
  const head = `Answer token ${x + 1}, layer ${layer + 1}, step ${stepNumber}: `;
  const found = textsAt(sides, layer, x);
  if (!found) return head + "not computed in both lanes";
  const [mine, theirs] = found;
  const tokens = mine === theirs ? `${mine} in both lanes` : `A ${mine}, B ${theirs}`;
  const tail = turned[x] < 0 ? "" : `; B differs to the end from layer ${turned[x] + 1} on`;
  return head + tokens + tail;
}

function drawTurns({ panel, pair, layers, stepNumber }: Sides): void {
  const counts = turnCounts(pair, layers);
  const xs = placesOf(layers);
  const most = Math.max(...counts.differing, ...counts.turned, 1);
  panel.bothFigure("lens-turns").show({
    title: `Step ${stepNumber}: answer tokens that differ between the lanes, by layer`,
    y: { name: "answer tokens", from: 0, to: most * 1.08 },
    series: [
      { name: "differ after this layer", colour: "#0072b2", xs, ys: counts.differing },
      {
        name: "differ from this layer on",
        kind: "bars",
        colour: "#d55e00",
        wide: 0.5,
        xs,
        ys: counts.turned,
      },
    ],
    ...overLayers(panel, (l) => {
      const all = plural(counts.compared[l], "answer token");
      return `Layer ${l + 1}: ${counts.differing[l]} of ${all} differ; ${counts.turned[l]} differ from here on`;
    }),
    height: 280,
  });
}
