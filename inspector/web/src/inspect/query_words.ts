/** What the view of the query drift says of DARE's thresholds, and its colours. */
import { cividis } from "../base/colours.ts";
import { percent } from "../base/format.ts";
import type { HeatSpec, ScaleLegend } from "../figures/spec.ts";
import type { NdArray } from "./arrays.ts";
import { DRIFT, NO_DATA } from "./codes.ts";
import { SITE_OPTIONS } from "./quantities.ts";

/** The thresholds of a run with L layers. */
export interface QueryData {
  /**
   * DARE's threshold by layer, and its target share of reuse: -1 and 0 if the layer reuses
   * nothing. Null for other methods.
   */
  threshold: readonly number[] | null;
  aimed: readonly number[] | null;
  /** Whether the cache is DARE. */
  dare: boolean;
  /** The site that the method reuses. */
  site: number;
  /** Whether DARE compares a query with that of the row's last refresh. */
  anchor: boolean;
  /** The borders of the bins. */
  edges: NdArray<Float32Array>;
  /** The commit calls of the run, whose rows are not counted. */
  calls: number;
}

const LOWEST = -5; // the colours go from 10⁻⁵ to 1
const DRIFT_LEGEND: ScaleLegend = {
  kind: "scale",
  name: "1 − cosine",
  colour: cividis,
  range: { from: 1e-5, to: 1, log: true },
  ticks: [
    [0, "≤ 10⁻⁵"],
    [0.2, "10⁻⁴"],
    [0.4, "10⁻³"],
    [0.6, "0.01"],
    [0.8, "0.1"],
    [1, "1"],
  ],
};
/** The threshold of a layer; null if the layer reuses nothing or there is none. */
export function layerLimit(
  { threshold }: Pick<QueryData, "threshold">,
  layer: number,
): number | null {
  const limit = threshold ? threshold[layer] : -1;
  return limit >= 0 ? limit : null;
}

/** The place of a drift between 10⁻⁵ (0) and 1 (1) on a logarithmic scale. */
function scalePlace(drift: number): number {
  const log = (Math.log10(Math.max(drift, 1e-12)) - LOWEST) / -LOWEST;
  return Math.min(Math.max(log, 0), 1);
}

/** The colour of every code. */
export const QUERY_COLOURS = Array.from(DRIFT.subarray(0, NO_DATA), (drift) =>
  cividis(scalePlace(drift)),
);

/**
 * The legend of the map: what is reused in it, and the threshold of its layer (null: none); `whole`
 * as `isWhole` gives it.
 */
export function mapLegend(
  site: number,
  layer: number,
  limit: number | null,
  whole = true,
): Required<Pick<HeatSpec, "legend" | "blank" | "underName">> {
  const legend: ScaleLegend = { ...DRIFT_LEGEND, marks: [], items: [] };
  if (limit !== null) {
    legend.marks = [scalePlace(limit)];
    legend.items = [[[213, 94, 0], `τ of layer ${layer + 1}: ${limit.toPrecision(2)}`, "τ"]];
  }
  return {
    legend,
    blank:
      "no data: query not computed, or computed for the first time" +
      (whole ? "" : ", or not recorded"),
    underName: SITE_OPTIONS[site][1] + " reused",
  };
}

/** Where the rows are that the histogram counts; `recorded` as `recordedOf` gives it. */
export function countedPlaces({ calls }: Pick<QueryData, "calls">, recorded: string): string {
  return `all ${recorded}positions and steps${calls ? " but commit calls" : ""}`;
}

/** A code as text, of a run of which all compared queries were recorded (`isWhole`), or not. */
export function codeText(code: number, whole: boolean): string {
  if (code === NO_DATA) return whole ? "not compared" : "not compared or not recorded";
  return code ? DRIFT[code].toPrecision(2) : "below 0.000015";
}

/** What the threshold of a layer is, and where it is from. */
export function thresholdWords(data: QueryData, layer: number, limit: number | null): string {
  if (!data.dare)
    return "The cache of this run does not compare queries, so there is no threshold. The map shows the drift of the queries that were computed.";
  if (!data.threshold) return "This run reuses nothing (quantile 0), so there is no threshold.";
  let shown = "nothing is reused";
  if (limit !== null) {
    const aimed = percent(data.aimed?.[layer] ?? null, 1);
    shown = `τ = ${limit.toPrecision(2)}, set so that ${aimed} of the rows of a calibration run stay below it`;
  }
  const anchor = data.anchor
    ? " The method compared each query with the query at the row's last refresh; the drift shown here is from one step to the next."
    : "";
  return `Layer ${layer + 1}: ${shown}.${anchor}`;
}
