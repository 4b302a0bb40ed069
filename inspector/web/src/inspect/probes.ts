/** The probed steps of a run: how far its values and predictions are from the exact ones. */
import { chance } from "../base/format.ts";
import { quoted, type Piece } from "../base/token_text.ts";
import { at, type NdArray } from "./arrays.ts";
import type { Query } from "./slice.ts";
import { SITES } from "./sites.ts";

/** The probed steps of a run, E of them, and the predictions compared in each. */
export interface ErrorData {
  /** [E]: the probed steps. */
  step: NdArray;
  /** [E]: predictions, their mean and largest total variation (NaN, 0: no predictions). */
  count: NdArray;
  mean_tv: NdArray;
  worst_tv: NdArray;
  /** [E]: predictions whose top token differs. */
  flips: NdArray;
  /** Whether DARE's bound of the error is known. */
  bounded: boolean;
}

/** The predictions of a probed step, R of them. */
export interface ProbedPredictions {
  /** [R]: position and total variation. */
  position: NdArray;
  tv: NdArray;
  /** [R, 2]: the most likely id in the run, and in the exact forward. */
  top: NdArray;
  pieces: Partial<Record<string, Piece>>;
}

/** Mean error of a site over the rows in the forward [E, layers]. */
export interface MeanErrors {
  mean: NdArray;
}

/** Recall of the recomputed rows, and of a random choice [E, layers]; NaN if all or none were. */
export interface Recall {
  recall: NdArray;
  chance: NdArray;
}

/** DARE's bound of the error of a layer [E, 2], and the error [E]. */
export interface Bound {
  proxy: NdArray;
  true: NdArray;
}

/** The slice of a run's probed steps. */
export const PROBES = { view: "error", part: "facts" };

/** The slice of the mean errors of a site. */
export function meanErrors(site: number): Query {
  return { view: "error", part: "mean", quantity: SITES[site] };
}

/** The slice of the predictions of a probed step, given by its index. */
export function probedPredictions(probe: number): Query {
  return { view: "error", part: "predictions", probe };
}

/** A prediction of the run, compared with that of the exact pass. */
export interface Prediction {
  /** The answer token, from 0. */
  place: number;
  /** Total variation. */
  tv: number;
  /** Whether the most likely tokens differ. */
  flip: boolean;
  mine: string;
  exact: string;
}

/** The predictions of a probed step in words. */
export function predictions(data: ProbedPredictions, prompt: number): Prediction[] {
  const piece = (id: number): string => {
    const found = data.pieces[id];
    return quoted(found) + (found === undefined ? ` (id ${id})` : "");
  };
  return Array.from(data.position.values, (position, i) => {
    const [mine, exact] = [at(data.top, i, 0), at(data.top, i, 1)];
    return {
      place: position - prompt,
      tv: data.tv.values[i],
      flip: mine !== exact,
      mine: piece(mine),
      exact: piece(exact),
    };
  });
}

/** A prediction in words. */
export function predictionWords({ place, tv, flip, mine, exact }: Prediction): string {
  const tokens = flip
    ? `most likely in the run ${mine}, in the exact pass ${exact}`
    : `most likely ${mine} in both`;
  return `answer token ${place + 1}: ${tokens} (total variation ${chance(tv)})`;
}
