/** The drift of both lanes beside each other, and its difference. */
import type { HeatSpec } from "../../figures/spec.ts";
import { at } from "../arrays.ts";
import { DRIFT, driftText, type DriftData } from "../codes.ts";
import {
  decadesApart,
  MARKED_DECADES,
  RATIO_LOOKS,
  ratioWords,
  sharedSteps,
} from "../differences.ts";
import type { Panel } from "../panel.ts";
import { QUANTITY_NAMES } from "../quantities.ts";

/** The two lanes that are compared, and the steps that both took. */
interface Scene {
  panel: Panel;
  a: DriftData;
  b: DriftData;
  quantity: string;
  /** The first common step, from 0 and counted with those before a branch. */
  first: number;
  count: number;
}

/** Draw how much more, or less, lane B drifted than lane A: of a layer, and of a step. */
export function drawDriftDifference(
  panel: Panel,
  data: Readonly<{ a: DriftData; b: DriftData }>,
  quantity: string,
): void {
  const { lanes } = panel.inspector.store;
  const scene = { panel, ...data, quantity, ...sharedSteps(lanes.a, lanes.b) };
  if (!scene.count) return;
  drawSteps(scene);
  drawLayers(scene);
}

/** The drifts of both lanes at a common step, a layer and a position; NaN where not evaluated. */
function drifts(scene: Scene, step: number, layer: number, x: number): [number, number] {
  const [a, b] = codes(scene, step, layer, x);
  return [DRIFT[a], DRIFT[b]];
}

function codes(scene: Scene, step: number, layer: number, x: number): [number, number] {
  const { lanes } = scene.panel.inspector.store;
  const code = (name: "a" | "b"): number => {
    const data = scene[name];
    const own = scene.first + step - lanes[name].before;
    return at(data.drift, own, layer, data.quantities.indexOf(scene.quantity), x);
  };
  return [code("a"), code("b")];
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
    leave: () => panel.pick(null, false),
    height: 320,
  };
}

function cellWords(scene: Scene, step: number, layer: number, x: number): string {
  const [a, b] = codes(scene, step, layer, x);
  const where = `Position ${x + 1}, step ${scene.first + step + 1}, layer ${layer + 1}`;
  const apart = ratioWords(decadesApart(DRIFT[a], DRIFT[b]));
  return `${where}: A ${driftText(a)}, B ${driftText(b)}, ${apart}`;
}

/** The common step of the cursor, within the steps that both lanes took. */
function stepOf({ panel, first, count }: Scene): number {
  const { lanes } = panel.inspector.store;
  const step = panel.cursor.step + lanes[panel.cursor.lane].before - first;
  return Math.min(Math.max(step, 0), count - 1);
}

/** The step of the cursor's lane that is a common step. */
function own({ panel, first }: Scene, step: number): number {
  return first + step - panel.lane.before;
}

function drawSteps(scene: Scene): void {
  const { panel, quantity, first, count } = scene;
  const { layer } = panel.spot;
  panel.bothFigure("drift-steps-difference").show({
    ...shared(scene, (x, step) => decadesApart(...drifts(scene, step, layer, x))),
    title: `Drift of ${QUANTITY_NAMES[quantity]} in layer ${layer + 1}, B compared with A: step by position`,
    key: ["sd", quantity, layer, panel.inspector.key].join(),
    y: { name: "step", count, tick: (step) => String(first + step + 1) },
    words: (x, step) => cellWords(scene, step, layer, x),
    pick: (x, step, pin) => panel.pick({ position: x, step: own(scene, step) }, pin),
    at: { x: panel.cursor.position, y: stepOf(scene) },
  });
}

function drawLayers(scene: Scene): void {
  const { panel, quantity, first } = scene;
  const step = stepOf(scene);
  panel.bothFigure("drift-layers-difference").show({
    ...shared(scene, (x, layer) => decadesApart(...drifts(scene, step, layer, x))),
    title: `Drift of ${QUANTITY_NAMES[quantity]} in step ${first + step + 1}, B compared with A: layer by position`,
    key: ["ld", quantity, step, panel.inspector.key].join(),
    y: { name: "layer", count: panel.frame.layers },
    words: (x, layer) => cellWords(scene, step, layer, x),
    pick: (x, layer, pin) => panel.pick({ position: x, layer }, pin),
    at: { x: panel.cursor.position, y: panel.spot.layer },
  });
}
