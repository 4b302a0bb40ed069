import type { HeatSpec } from "../../figures/spec.ts";
import { LANES } from "../../race/messages.ts";
import { at } from "../arrays.ts";
import {
  DRIFT,
  DRIFT_COLOURS,
  DRIFT_SCALE,
  driftColour,
  driftText,
  NO_DATA,
  type DriftData,
} from "../codes.ts";
import type { Panel } from "../panel.ts";
import { planeCodes } from "../planes.ts";
import { QUANTITY_NAMES, QUANTITY_OPTIONS } from "../quantities.ts";
import { bothSides, SIDES_CONTROL } from "../sides.ts";
import { viewOf } from "../view.ts";
import { drawDriftDifference } from "./drift_sides.ts";

/** Drift by position: of one layer in all steps, and of all layers in one step. */
export const drift = viewOf<DriftData>({
  title: "Drift",
  level: "layers",
  source: "drift",
  about:
    "The drift of each row when it was recomputed: 1 − cosine between the new and the previous value, on a log scale. " +
    "Reused rows have no new value and are hatched. An orange dot marks the step at which a token was unmasked; after it, K and V should hardly change.",
  controls: [
    { name: "quantity", label: "Quantity", value: "v", options: QUANTITY_OPTIONS },
    SIDES_CONTROL,
  ],
  draw(panel, data) {
    const both = bothSides<DriftData>(panel, "drift");
    panel.showFigures(both ? BOTH : ONE);
    if (!both) return drawLane(panel, data);
    for (const draw of [drawSteps, drawLayers])
      for (const lane of LANES) draw(panel.of(lane), both[lane], quantityOf(panel, both[lane]));
    drawDriftDifference(panel, both, panel.choice("quantity"));
  },
});

const ONE = ["drift-steps", "drift-layers"];
const BOTH = ONE.flatMap((name) => [`${name}-a`, `${name}-b`, `${name}-difference`]);

function drawLane(panel: Panel, data: DriftData): void {
  const quantity = quantityOf(panel, data);
  drawSteps(panel, data, quantity);
  drawLayers(panel, data, quantity);
}

function quantityOf(panel: Panel, data: DriftData): number {
  return data.quantities.indexOf(panel.choice("quantity"));
}

function codeAt(data: DriftData, ...index: [number, number, number, number]): number | null {
  const code = at(data.drift, ...index);
  return code === NO_DATA ? null : code;
}

function shared(
  panel: Panel,
): Pick<HeatSpec, "x" | "colour" | "legend" | "unit" | "plain" | "leave" | "height"> {
  return {
    x: panel.positions(),
    colour: driftColour,
    legend: DRIFT_SCALE,
    unit: "1 - cosine",
    plain: (code) => DRIFT[code],
    leave: () => panel.pick(null, false),
    height: 320,
  };
}

function cellWords(panel: Panel, step: number, layer: number, x: number, code: number): string {
  const where = `Position ${x + 1}, ${panel.text(x, step)}, step ${panel.number(step)}, layer ${layer + 1}`;
  return where + ": " + driftText(code);
}

function drawSteps(panel: Panel, data: DriftData, quantity: number): void {
  const { frame, cursor, spot } = panel;
  const { layer } = spot;
  const dots: [number, number][] = [];
  frame.revealed.values.forEach((step, x) => {
    if (step >= 0) dots.push([x, step]);
  });
  panel.figure("drift-steps").show({
    ...shared(panel),
    title: `Drift of ${QUANTITY_NAMES[data.quantities[quantity]]} in layer ${layer + 1}: step by position`,
    key: `s${quantity},${layer},${cursor.lane}${panel.inspector.key}`,
    y: panel.stepCells(),
    value: (x, step) => codeAt(data, step, layer, quantity, x),
    cells: () => ({
      codes: planeCodes(data.drift, { rows: 0, columns: 3, at: [0, layer, quantity, 0] }),
      palette: DRIFT_COLOURS,
    }),
    about: { layer, quantity: data.quantities[quantity] },
    words: (x, step) => cellWords(panel, step, layer, x, at(data.drift, step, layer, quantity, x)),
    pick: (x, step, pin) => panel.pick({ position: x, step }, pin),
    at: { x: cursor.position, y: spot.step },
    dots,
  });
}

function drawLayers(panel: Panel, data: DriftData, quantity: number): void {
  const { frame, cursor, spot } = panel;
  const { step } = spot;
  panel.figure("drift-layers").show({
    ...shared(panel),
    title: `Drift of ${QUANTITY_NAMES[data.quantities[quantity]]} in step ${panel.number(step)}: layer by position`,
    key: `l${quantity},${step},${cursor.lane}${panel.inspector.key}`,
    y: { name: "layer", count: frame.layers },
    value: (x, layer) => codeAt(data, step, layer, quantity, x),
    cells: () => ({
      codes: planeCodes(data.drift, { rows: 1, columns: 3, at: [step, 0, quantity, 0] }),
      palette: DRIFT_COLOURS,
    }),
    about: { quantity: data.quantities[quantity] },
    words: (x, layer) => cellWords(panel, step, layer, x, at(data.drift, step, layer, quantity, x)),
    pick: (x, layer, pin) => panel.pick({ position: x, layer }, pin),
    at: { x: cursor.position, y: spot.layer },
  });
}
