/** The recorded plans of a run, as they are in slices: which rows were recomputed. */
import { at, bit, type NdArray } from "./arrays.ts";
import type { Query } from "./slice.ts";
import { SITES } from "./sites.ts";

/** Bits of the rows [layers, 4, positions / 8] of a step, or [steps, sites, …] of a layer. */
export interface PlanBits {
  bits: NdArray;
}

/** How many rows of a window of positions were recomputed [steps, layers, 4]. */
export interface RowsDone {
  done: NdArray;
}

/** What happened to one position. */
export interface TokenRows {
  /** Drift codes [quantities, steps, layers]; left out if there are none. */
  drift?: NdArray;
  quantities: readonly string[];
  /** A bit for each site that was recomputed [steps, layers]. */
  sites: NdArray;
}

/** The rows that a step recomputed, in all layers. */
export function planOfStep(step: number): Query {
  return { view: "plan", part: "bits", step };
}

/** The rows of a site that a layer recomputed, in all steps. */
export function planOfLayer(layer: number, site: number): Query {
  return { view: "plan", part: "bits", layer, quantity: SITES[site] };
}

/** The number of rows from a position on that were recomputed, by step, layer and site. */
export function rowsDone(from = 0): Query {
  return { view: "plan", part: "counts", position_from: from || undefined };
}

/** The drift codes of all rows of a step [layers, positions]; `by`: how cells were joined. */
export interface RowDrifts {
  cells: NdArray;
  by: string;
}

/** The drifts of a quantity of all rows of a step. */
export function driftOfRows(quantity: string, step: number): Query {
  return { view: "drift", part: "map", quantity, step };
}

/** The drift codes row by row; null if the server joined rows, as it does in very large maps. */
export function singleRows({ cells, by }: RowDrifts): NdArray | null {
  return by === "none" ? cells : null;
}

/** The drifts and the recomputed sites of a position. */
export function tokenRows(position: number): Query {
  return { view: "token", position };
}

/** Whether a site of a row was recomputed in a layer of the step. */
export function isDone({ bits }: PlanBits, layer: number, site: number, position: number): boolean {
  return bit(bits, position, layer, site) === 1;
}

/** Whether a site of the position was recomputed in a step and a layer. */
export function siteDone({ sites }: TokenRows, step: number, layer: number, site: number): boolean {
  return ((at(sites, step, layer) >> site) & 1) === 1;
}

/** In how many of the first `steps` steps a site of the position was recomputed in a layer. */
export function timesDone(rows: TokenRows, steps: number, layer: number, site: number): number {
  let count = 0;
  for (let step = 0; step < steps; step++) if (siteDone(rows, step, layer, site)) count++;
  return count;
}

/** The drift code of a quantity of the position; `none` if it is unknown. */
export function driftCode(
  { drift, quantities }: TokenRows,
  quantity: string,
  step: number,
  layer: number,
  none: number,
): number {
  const place = quantities.indexOf(quantity);
  return drift && place >= 0 ? at(drift, place, step, layer) : none;
}
