import type { HeatSpec } from "../../figures/spec.ts";
import { LANES } from "../../race/messages.ts";
import { DRIFT, DRIFT_COLOURS, DRIFT_SCALE, driftColour, driftText, known } from "../codes.ts";
import { driftOfLayer, driftOfStep, HEIGHT } from "../drift_maps.ts";
import type { Panel } from "../panel.ts";
import { QUANTITY_NAMES, QUANTITY_OPTIONS } from "../quantities.ts";
import { bothSides, SIDES_CONTROL } from "../sides.ts";
import { isWhole, type View } from "../view.ts";
import { drawDriftDifference } from "./drift_sides.ts";

/** Drift by position: of one layer in all steps, and of all layers in one step. */
export const drift: View = {
  title: "Drift",
  level: "layers",
  about:
    "The drift of each row when it was recomputed: 1 − cosine between the new and the previous value, on a log scale. " +
    "Reused rows have no new value and are hatched. An orange dot marks the step that committed a token; after it, K and V should hardly change.",
  controls: [
    { name: "quantity", label: "Quantity", value: "v", options: QUANTITY_OPTIONS },
    SIDES_CONTROL,
  ],
  draw(panel) {
    const both = bothSides(panel);
    for (const name of both ? BOTH : ONE) panel.place(name);
    panel.showFigures(both ? BOTH : ONE);
    if (!both) {
      drawSteps(panel);
      drawLayers(panel);
      return;
    }
    for (const draw of [drawSteps, drawLayers]) for (const lane of LANES) draw(panel.of(lane));
    drawDriftDifference(panel, panel.choice("quantity"));
  },
};

const ONE = ["drift-steps", "drift-layers"];
const BOTH = [
  ...ONE.flatMap((name) => [`${name}-a`, `${name}-b`]),
  ...ONE.map((name) => `${name}-difference`),
];

function shared(
  panel: Panel,
): Pick<HeatSpec, "x" | "colour" | "legend" | "unit" | "plain" | "height"> {
  return {
    x: panel.positions(),
    colour: driftColour,
    legend: DRIFT_SCALE,
    unit: "1 - cosine",
    plain: (code) => DRIFT[code],
    height: HEIGHT,
  };
}

/** The drift of a cell; `joined` says that it stands for several. */
function valueWords(panel: Panel, code: number, joined: string): string {
  return joined + driftText(code, isWhole(panel.frame, panel.choice("quantity")));
}

function whereWords(panel: Panel, x: number, step: number, layer: number): string {
  const place = `${panel.text(x, step)}, step ${panel.number(step)}, layer ${layer + 1}`;
  return `Position ${x + 1}, ${place}: `;
}

function drawSteps(panel: Panel): void {
  const { frame, cursor, spot } = panel;
  const { layer } = spot;
  const quantity = panel.choice("quantity");
  const map = driftOfLayer(panel, "drift-steps", quantity);
  if (!map) return;
  const dots: [number, number][] = [];
  frame.revealed.values.forEach((step, x) => {
    if (step >= 0) dots.push([x, step]);
  });
  panel.figure("drift-steps").show({
    ...shared(panel),
    ...map.drawn(DRIFT_COLOURS),
    title: `Drift of ${QUANTITY_NAMES[quantity]} in layer ${layer + 1}: step by position`,
    key: `s${map.key}`,
    y: panel.stepCells(),
    value: (x, step) => known(map.at(step, x)),
    about: { layer, quantity },
    words: (x, step) =>
      whereWords(panel, x, step, layer) + valueWords(panel, map.at(step, x), map.words(step, x)),
    pick: (x, step, pin) => panel.pick({ position: x, step }, pin),
    at: { x: cursor.position, y: spot.step },
    dots,
  });
}

function drawLayers(panel: Panel): void {
  const { frame, cursor, spot } = panel;
  const { step } = spot;
  const quantity = panel.choice("quantity");
  const map = driftOfStep(panel, "drift-layers", quantity);
  if (!map) return;
  panel.figure("drift-layers").show({
    ...shared(panel),
    ...map.drawn(DRIFT_COLOURS),
    title: `Drift of ${QUANTITY_NAMES[quantity]} in step ${panel.number(step)}: layer by position`,
    key: `l${map.key}`,
    y: { name: "layer", count: frame.layers },
    value: (x, layer) => known(map.at(layer, x)),
    about: { quantity },
    words: (x, layer) =>
      whereWords(panel, x, step, layer) + valueWords(panel, map.at(layer, x), map.words(layer, x)),
    pick: (x, layer, pin) => panel.pick({ position: x, layer }, pin),
    at: { x: cursor.position, y: spot.layer },
  });
}
