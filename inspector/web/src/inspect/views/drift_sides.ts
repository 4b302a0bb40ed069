/** The drift of both lanes beside each other, and its difference. */
import type { Figure } from "../../figures/figure.ts";
import type { HeatSpec } from "../../figures/spec.ts";
import type { LaneName } from "../../race/messages.ts";
import { largerBlocks, type CellMap } from "../cell_map.ts";
import { DRIFT, driftText } from "../codes.ts";
import {
  decadesApart,
  MARKED_DECADES,
  RATIO_LOOKS,
  ratioWords,
  sharedSteps,
} from "../differences.ts";
import { driftOfLayer, driftOfStep } from "../drift_maps.ts";
import type { Panel } from "../panel.ts";
import { QUANTITY_NAMES } from "../quantities.ts";
import { isWhole } from "../view.ts";

/** The maps of both lanes, and the steps that both took. */
interface Scene {
  panel: Panel;
  a: CellMap;
  b: CellMap;
  quantity: string;
  /** The first common step, from 0 and counted with those before a branch. */
  first: number;
  count: number;
}

/** Draw how much more, or less, lane B drifted than lane A: of a layer, and of a step. */
export function drawDriftDifference(panel: Panel, quantity: string): void {
  const { lanes } = panel.inspector.store;
  const shared = { panel, quantity, ...sharedSteps(lanes.a, lanes.b) };
  if (!shared.count) {
    for (const name of ["drift-steps", "drift-layers"])
      panel.bothFigure(name + "-difference").wait("The lanes have no step in common.");
    return;
  }
  const steps = pairOf(panel, "drift-steps", (side, figure) =>
    driftOfLayer(side, "", quantity, figure),
  );
  if (steps) drawSteps({ ...shared, ...steps });
  const layers = pairOf(panel, "drift-layers", (side, figure) => {
    const own = shared.first + stepOf({ ...shared }) - side.lane.before;
    return driftOfStep(side, "", quantity, figure, own);
  });
  if (layers) drawLayers({ ...shared, ...layers });
}

/** A map of each lane; null if one is on its way. */
function pairOf(
  panel: Panel,
  name: string,
  map: (side: Panel, figure: Figure) => CellMap | null,
): { a: CellMap; b: CellMap } | null {
  const figure = panel.bothFigure(name + "-difference");
  const [a, b] = [map(panel.of("a"), figure), map(panel.of("b"), figure)];
  return a && b ? { a, b } : null;
}

/** The row of a lane's map that is a row of the difference: a common step, or a layer. */
function ownRow(scene: Scene, rows: "step" | "layer", row: number, name: LaneName): number {
  const { lanes } = scene.panel.inspector.store;
  return rows === "layer" ? row : scene.first + row - lanes[name].before;
}

/** The codes of both lanes in a row of the difference, NaN where a lane has no such row. */
function codes(scene: Scene, rows: "step" | "layer", row: number, x: number): [number, number] {
  const code = (name: LaneName): number => scene[name].at(ownRow(scene, rows, row, name), x);
  return [code("a"), code("b")];
}

function driftsAt(scene: Scene, rows: "step" | "layer", row: number, x: number): [number, number] {
  const [a, b] = codes(scene, rows, row, x);
  return [driftOf(a), driftOf(b)];
}

function apartAt(scene: Scene, rows: "step" | "layer", row: number, x: number): number | null {
  return decadesApart(...driftsAt(scene, rows, row, x));
}

/** The drift of a code; NaN if it is unknown, also where the lane has no such row. */
function driftOf(code: number): number {
  return Number.isNaN(code) ? NaN : DRIFT[code];
}

/** The drift of a cell of a map; a cell that stands for several says so. */
export function laneCellWords(map: CellMap, row: number, x: number, whole: boolean): string {
  const code = map.at(row, x);
  return Number.isNaN(code) ? "not in this lane" : map.words(row, x) + driftText(code, whole);
}

function shared(
  { panel }: Scene,
  apart: (x: number, y: number) => number | null,
): Partial<HeatSpec> & Pick<HeatSpec, "x" | "value" | "colour"> {
  return {
    ...RATIO_LOOKS,
    x: panel.positions(),
    value: apart,
    over: (x, y) => (apart(x, y) ?? 0) >= MARKED_DECADES,
    under: (x, y) => (apart(x, y) ?? 0) <= -MARKED_DECADES,
    several: "mean",
    height: 320,
  };
}

function cellWords(scene: Scene, rows: "step" | "layer", row: number, x: number): string {
  const { panel, quantity } = scene;
  const words = (name: LaneName): string => {
    const whole = isWhole(panel.of(name).frame, quantity);
    return laneCellWords(scene[name], ownRow(scene, rows, row, name), x, whole);
  };
  return `A ${words("a")}, B ${words("b")}, ${ratioWords(...driftsAt(scene, rows, row, x))}`;
}

/** The common step of the cursor, within the steps that both lanes took. */
function stepOf({ panel, first, count }: Pick<Scene, "panel" | "first" | "count">): number {
  const { lanes } = panel.inspector.store;
  const step = panel.cursor.step + lanes[panel.cursor.lane].before - first;
  return Math.min(Math.max(step, 0), count - 1);
}

/** The step of the cursor's lane that is a common step. */
function own({ panel, first }: Scene, step: number): number {
  return first + step - panel.lane.before;
}

function drawSteps(scene: Scene): void {
  const { panel, quantity, first, count, a, b } = scene;
  const { layer } = panel.spot;
  const alike = panel.inspector.store.parent ? undefined : a.joinedAs(b);
  panel.bothFigure("drift-steps-difference").show({
    ...shared(scene, (x, step) => apartAt(scene, "step", step, x)),
    blocks: alike ?? largerBlocks(a, b, panel.frame.positions, count),
    joined: "of the largest drifts of each lane",
    title: `Drift of ${QUANTITY_NAMES[quantity]} in layer ${layer + 1}, B compared with A: step by position`,
    key: ["sd", a.key, b.key].join(),
    y: { name: "step", count, tick: (step) => String(first + step + 1) },
    words: (x, step) =>
      `Position ${x + 1}, step ${first + step + 1}, layer ${layer + 1}: ` +
      cellWords(scene, "step", step, x),
    pick: (x, step, pin) => panel.pick({ position: x, step: own(scene, step) }, pin),
    at: { x: panel.cursor.position, y: stepOf(scene) },
  });
}

function drawLayers(scene: Scene): void {
  const { panel, quantity, first, a, b } = scene;
  const step = stepOf(scene);
  panel.bothFigure("drift-layers-difference").show({
    ...shared(scene, (x, layer) => apartAt(scene, "layer", layer, x)),
    title: `Drift of ${QUANTITY_NAMES[quantity]} in step ${first + step + 1}, B compared with A: layer by position`,
    key: ["ld", a.key, b.key].join(),
    y: { name: "layer", count: panel.frame.layers },
    words: (x, layer) =>
      `Position ${x + 1}, step ${first + step + 1}, layer ${layer + 1}: ` +
      cellWords(scene, "layer", layer, x),
    pick: (x, layer, pin) => panel.pick({ position: x, layer }, pin),
    at: { x: panel.cursor.position, y: panel.spot.layer },
  });
}
