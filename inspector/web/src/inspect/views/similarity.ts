import { cividis } from "../../base/colours.ts";
import { plural } from "../../base/format.ts";
import type { Figure } from "../../figures/figure.ts";
import type { CellCodes, HeatSpec } from "../../figures/spec.ts";
import { LANES, type LaneName } from "../../race/messages.ts";
import { placesOf } from "../axes.ts";
import { at, type NdArray } from "../arrays.ts";
import type { CellMap } from "../cell_map.ts";
import { decade, DRIFT, DRIFT_AXIS, DRIFT_SCALE, NO_DATA } from "../codes.ts";
import { layersBeside } from "../drift_maps.ts";
import type { Inspector } from "../inspector.ts";
import type { MapWish } from "../map_reading.ts";
import type { Panel } from "../panel.ts";
import type { Query } from "../slice.ts";
import {
  comparedUpTo,
  cosineText,
  groupNames,
  sameGroup,
  type Kind,
  type SimilarityData,
} from "../step_pairs.ts";
import { bothSides, SIDES_CONTROL } from "../sides.ts";
import { shareScale } from "../probability.ts";
import { viewOf } from "../view.ts";
import { drawSimilarityDifference } from "./similarity_sides.ts";

/** The numbers of the codes that have one. */
const NUMBERS = DRIFT.subarray(0, NO_DATA);

const GROUP_LOOKS: readonly (readonly [string, readonly number[]])[] = [
  ["#0072b2", []],
  ["#e69f00", [7, 3]],
  ["#009e73", [2, 3]],
  ["#cc79a7", [9, 3, 2, 3]],
  ["#d55e00", [4, 2]],
  ["#56b4e9", [1, 2]],
];
const COSINE_SCALE = shareScale("cosine");

/** What is drawn: the choices of the controls, and the cursor within the compared steps. */
interface Scene {
  data: SimilarityData;
  /** The compared steps. */
  steps: readonly number[];
  kind: Kind;
  /** "K" or "V". */
  name: string;
  groups: string[];
  group: number;
  layer: number;
  /** The compared step at the cursor. */
  now: number;
  /** The scale is the cosine instead of 1 − cosine on a logarithmic scale. */
  linear: boolean;
  /** Changes whenever the values or their scale change. */
  key: string;
}

/** A cell of a matrix, in compared steps. */
interface Cell {
  x: number;
  y: number;
}

/** A cell of the matrix of a run and a lane. */
interface OwnCell extends Cell {
  of: string;
}

/** The cell of each inspector that the reader chose, and the one that the pointer is at. */
const CHOSEN = new WeakMap<Inspector, OwnCell>();
const POINTED = new WeakMap<Inspector, OwnCell>();

const FACTS = { view: "similarity", part: "facts" };

/** How similar K or V are in any two steps. */
export const similarity = viewOf<SimilarityData>({
  title: "Similarity",
  level: "layers",
  source: FACTS,
  about:
    "The cosine between K, or V, of any two steps, averaged over the tokens of a group, in each layer (Fast-dLLM, figure 3; DARE, figure 4). " +
    "A dark square on the diagonal is a range of steps in which the values barely change, so that a cache can be reused. On the linear scale of the papers it is bright. " +
    "The averages are over a sample of each group's tokens, vectors wider than 64 are randomly projected, and a reused row counts with its cached value.",
  controls: [
    {
      name: "kind",
      label: "Of",
      value: "v",
      options: [
        ["k", "K"],
        ["v", "V"],
      ],
    },
    { name: "group", label: "Group", value: "0", options: [["0", "prompt"]] },
    {
      name: "scale",
      label: "Scale",
      value: "log",
      options: [
        ["log", "1 − cosine, log"],
        ["linear", "cosine, linear"],
      ],
    },
    SIDES_CONTROL,
  ],
  draw(panel, data) {
    const both = bothSides(panel);
    for (const name of ["similarity-steps", ...BOTH, ...OTHERS]) panel.place(name);
    panel.showFigures([...(both ? BOTH : ["similarity-steps"]), ...OTHERS]);
    const groups = groupNames(data.groups, panel.frame);
    const options = groups.map((text, g): [string, string] => [String(g), text]);
    panel.choices("group", options);
    const scene = sceneOf(panel, data, Number(panel.choice("group")));
    forgetCells(panel, scene);
    if (both) drawSides(panel, scene);
    if (!both) drawMatrix(panel, scene);
    drawDistance(panel, scene);
    drawLayers(panel, scene);
  },
});

const BOTH = ["a", "b", "difference"].map((side) => `similarity-steps-${side}`);
const OTHERS = ["similarity-distance", "similarity-layers"];

/** A matrix of a lane, and what it shows. */
interface Side {
  scene: Scene;
  map: CellMap;
}

function drawSides(panel: Panel, shown: Scene): void {
  const figure = panel.bothFigure("similarity-steps-difference");
  const [a, b] = LANES.map((lane) => drawSide(panel.of(lane), lane, shown, figure));
  if (!a || !b) return;
  const { group, layer, linear, name, groups } = a.scene;
  const what = `${name} of layer ${layer + 1}, ${groups[group]}`;
  const key = [a.scene.key, a.map.key, b.map.key].join();
  const [steps, maps] = [
    { a: a.scene.steps, b: b.scene.steps },
    { a: a.map, b: b.map },
  ];
  drawSimilarityDifference(panel, { steps, maps, what, linear, key });
}

/** Draw the matrix of a lane; null if it waits or is missing, which `difference` says too. */
function drawSide(side: Panel, lane: LaneName, shown: Scene, difference: Figure): Side | null {
  const figure = side.figure("similarity-steps");
  const found = side.parts<{ data: SimilarityData }>([figure, difference], { data: FACTS }, lane);
  if (!found) return null;
  const { data } = found;
  const group = sameGroup(data.groups, shown.data.groups, shown.group);
  if (group < 0) {
    const name = shown.groups[shown.group];
    figure.wait(`Lane ${lane.toUpperCase()} has no group of the same tokens as ${name}.`);
    difference.wait("The lanes have other groups of tokens, so there is no difference to show.");
    return null;
  }
  const scene = sceneOf(side, data, group);
  drawMatrix(side, scene);
  const map = side.map({ ...matrixOf(scene), ahead: [] }, difference); // drawMatrix asks ahead
  return map && { scene, map };
}

function sceneOf(panel: Panel, data: SimilarityData, group: number): Scene {
  const kind = panel.choice("kind") === "k" ? "k" : "v";
  const linear = panel.choice("scale") === "linear";
  const steps = Array.from(data.steps.values);
  return {
    data,
    steps,
    kind,
    name: kind.toUpperCase(),
    groups: groupNames(data.groups, panel.frame),
    group,
    layer: Math.min(panel.cursor.layer ?? 0, data.change.shape[1] - 1),
    now: comparedUpTo(steps, panel.spot.step),
    linear,
    key: [kind, linear, panel.cursor.lane, panel.inspector.key].join(),
  };
}

type Looks = Pick<HeatSpec, "legend" | "unit"> & Required<Pick<HeatSpec, "colour" | "plain">>;

/** How a drift looks. */
function looks(linear: boolean): Looks {
  return linear
    ? {
        legend: COSINE_SCALE,
        unit: "cosine",
        colour: (drift) => cividis(1 - drift),
        plain: (drift) => 1 - drift,
      }
    : {
        legend: DRIFT_SCALE,
        unit: "1 - cosine",
        colour: (drift) => cividis(decade(drift)),
        plain: (drift) => drift,
      };
}

function known(drift: number): number | null {
  return Number.isNaN(drift) ? null : drift;
}

/** The run and the lane whose matrix a panel shows. */
function ownerOf({ inspector, cursor }: Panel): string {
  return [inspector.key, cursor.lane].join();
}

/** Whether a cell is in the cursor's row of the matrix that a panel shows. */
function isInRow(panel: Panel, { now }: Scene, cell: OwnCell | undefined): cell is OwnCell {
  return cell?.y === now && cell.of === ownerOf(panel);
}

/** The other step of the cell that is pointed at, or was chosen, in the cursor's row; else null. */
function otherStep(panel: Panel, scene: Scene): number | null {
  const cells = [POINTED, CHOSEN].map((kept) => kept.get(panel.inspector));
  return cells.find((cell) => isInRow(panel, scene, cell))?.x ?? null;
}

/** Once no cell is pointed at, forget the last one, and a chosen one that is in another row. */
function forgetCells(panel: Panel, scene: Scene): void {
  const { inspector } = panel;
  if (inspector.cursor.now !== inspector.cursor.pinned) return;
  POINTED.delete(inspector);
  if (!isInRow(panel, scene, CHOSEN.get(inspector))) CHOSEN.delete(inspector);
}

/** The matrix of a layer and a group. */
function matrixOf({ data, steps, kind, layer, group }: Scene): MapWish {
  const query = (layer: number): Query => {
    return { view: "similarity", part: "map", quantity: kind, layer, group };
  };
  return {
    figure: "similarity-steps",
    query: query(layer),
    rows: ["step", steps.length],
    columns: ["other", steps.length],
    ahead: layersBeside(layer, data.change.shape[1]).map(query),
  };
}

/** Draw the matrix, once its cells are there. */
function drawMatrix(panel: Panel, scene: Scene): void {
  const { steps, name, layer, group, now } = scene;
  const figure = panel.figure("similarity-steps");
  figure.root.classList.add("ds-tall");
  const map = panel.map(matrixOf(scene));
  if (!map) return;
  const tick = (i: number): string => String(panel.lane.stepNumber(steps[i]));
  const axis = { name: "step", count: steps.length, tick };
  const look = looks(scene.linear);
  const palette = Array.from(NUMBERS, look.colour);
  const { cells, blocks } = map.drawn(palette);
  figure.show({
    ...look,
    several: "mean",
    colour: (code) => look.colour(DRIFT[code]),
    plain: (code) => look.plain(DRIFT[code]),
    title: `${name} of layer ${layer + 1}, ${scene.groups[group]}: each step compared with each step`,
    key: [scene.key, map.key].join(),
    x: axis,
    y: axis,
    value: (x, y) => (map.at(y, x) < NO_DATA ? map.at(y, x) : null),
    cells: cells && ((): CellCodes => ({ ...cells(), numbers: NUMBERS })),
    blocks,
    about: { layer, quantity: name },
    words: (x, y) =>
      `Layer ${layer + 1}, ${scene.groups[group]}: ${name} of step ${tick(y)} and of step ${tick(x)}, ` +
      map.words(y, x) +
      cosineText(DRIFT[map.at(y, x)]),
    pick: (x, y, pin) => pickCell(panel, scene, { x, y }, pin),
    at: { x: otherStep(panel, scene) ?? now, y: now },
    square: 520,
  });
}

function pickCell(panel: Panel, { steps }: Scene, cell: Cell, pin: boolean): void {
  (pin ? CHOSEN : POINTED).set(panel.inspector, { ...cell, of: ownerOf(panel) });
  panel.pick({ step: steps[cell.y] }, pin);
  if (pin) panel.inspector.draw();
}

/** The drifts of a compared step against those up to it [steps, groups]. */
interface StepRow {
  codes: NdArray;
}

function drawDistance(panel: Panel, scene: Scene): void {
  const { steps, kind, name, layer, now } = scene;
  const figure = panel.figure("similarity-distance");
  const query = { view: "similarity", part: "row", quantity: kind, layer, index: now };
  const found = panel.parts<{ row: StepRow }>(figure, { row: query });
  if (!found) return;
  const drift = (u: number, group: number): number => DRIFT[at(found.row.codes, u, group)];
  // The compared steps before the cursor, the nearest first, and how many steps they are before.
  const before = placesOf(now).map((back) => now - back);
  const distances = before.map((u) => steps[now] - steps[u]);
  const nearest = (x: number): number => {
    const far = distances.map((distance) => Math.abs(distance - x));
    return before[far.indexOf(Math.min(...far))];
  };
  const other = otherStep(panel, scene);
  figure.show({
    about: { layer, quantity: name },
    title: now
      ? `${name} of layer ${layer + 1}: step ${panel.number(steps[now])} compared with the steps before it`
      : "There is no recorded step before this one; move the cursor to a later step",
    x: { name: "steps before", from: 0, to: Math.max(steps[steps.length - 1], 1), whole: true },
    y: scene.linear ? { name: "cosine", from: 0, to: 1 } : DRIFT_AXIS,
    series: scene.groups.map((text, g) => {
      const [colour, dash] = GROUP_LOOKS[g % GROUP_LOOKS.length];
      const drifts = before.map((u) => drift(u, g));
      const ys = scene.linear ? drifts.map((drift) => 1 - drift) : drifts;
      return { name: text, colour, dash, width: g === scene.group ? 3.5 : 1.5, xs: distances, ys };
    }),
    at: other !== null && other < now ? steps[now] - steps[other] : null,
    words: (x) => (now ? distanceWords(panel, scene, nearest(x), drift) : ""),
    pick: (x, _, pin) => {
      if (now) pickCell(panel, scene, { x: nearest(x), y: now }, pin);
    },
    height: 300,
  });
}

function distanceWords(
  panel: Panel,
  { steps, groups, now }: Scene,
  u: number,
  drift: (u: number, group: number) => number,
): string {
  const parts = groups.map((name, g) => `${name} ${cosineText(drift(u, g))}`);
  const before = plural(steps[now] - steps[u], "step");
  return `Step ${panel.number(steps[now])} compared with step ${panel.number(steps[u])}, ${before} before: ${parts.join("; ")}`;
}

function drawLayers(panel: Panel, scene: Scene): void {
  const { data, kind, name, groups } = scene;
  const mean = (layer: number, group: number): number =>
    at(data.change, kind === "k" ? 0 : 1, layer, group);
  panel.figure("similarity-layers").show({
    ...looks(scene.linear),
    several: "mean",
    title: `${name} compared with the previous recorded step, mean over the run: layer by group; a click chooses both`,
    key: scene.key,
    about: { quantity: name },
    x: { name: "group", count: groups.length, tick: (g) => groups[g] },
    y: { name: "layer", count: data.change.shape[1] },
    value: (g, layer) => known(mean(layer, g)),
    words: (g, layer) =>
      `Layer ${layer + 1}, ${groups[g]}: ${name} compared with the previous recorded step, ` +
      `mean of the pairs of steps that are known: ${cosineText(mean(layer, g))}`,
    pick: (g, layer, pin) => {
      if (pin) panel.set("group", String(g));
      panel.pick({ layer }, pin);
    },
    at: { x: scene.group, y: scene.layer },
    height: 300,
  });
}
