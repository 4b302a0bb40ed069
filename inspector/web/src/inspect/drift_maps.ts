/** The drift of a layer or of a step, as the cells of a figure. */
import type { Figure } from "../figures/figure.ts";
import type { CellMap } from "./cell_map.ts";
import type { Panel } from "./panel.ts";
import type { Query } from "./slice.ts";

/** The height of the maps in CSS pixels. */
export const HEIGHT = 320;

function query(quantity: string, place: { layer: number } | { step: number }): Query {
  return { view: "drift", part: "map", quantity, ...place };
}

/** The neighbours of a layer, whose slices are read ahead of time. */
export function layersBeside(layer: number, layers: number): number[] {
  return [layer - 1, layer + 1].filter((one) => one >= 0 && one < layers);
}

/** Drift codes of the cursor's layer: step by position. Null if the figure has to wait. */
export function driftOfLayer(
  panel: Panel,
  name: string,
  quantity: string,
  figure?: Figure,
  height = HEIGHT,
): CellMap | null {
  const { frame, spot } = panel;
  return panel.map(
    {
      figure: name,
      query: query(quantity, { layer: spot.layer }),
      rows: ["step", frame.steps],
      columns: ["position", frame.positions],
      height,
      ahead: layersBeside(spot.layer, frame.layers).map((layer) => query(quantity, { layer })),
    },
    figure,
  );
}

/** Drift codes of a step, by default the cursor's: layer by position. */
export function driftOfStep(
  panel: Panel,
  name: string,
  quantity: string,
  figure?: Figure,
  step = panel.spot.step,
): CellMap | null {
  const { frame } = panel;
  return panel.map(
    {
      figure: name,
      query: query(quantity, { step }),
      rows: ["layer", frame.layers],
      columns: ["position", frame.positions],
    },
    figure,
  );
}
