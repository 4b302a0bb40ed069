/** The compared steps of a run: their numbers, the groups of positions, and texts. */
import { at, type NdArray } from "./arrays.ts";
import type { Frame } from "./view.ts";

/** What was compared. */
export interface SimilarityData {
  /** The compared steps, in order. */
  steps: NdArray;
  /** The first position of each group, and the one after its last: [groups, 2]. */
  groups: NdArray;
  /** Mean of 1 − cosine to the previous compared step [2 (K, V), layers, groups]. */
  change: NdArray;
}

/** Which values are compared. */
export type Kind = "k" | "v";

/** The names of the groups of positions. */
export function groupNames(
  groups: NdArray,
  frame: Pick<Frame, "prompt" | "block" | "shared" | "positions">,
): string[] {
  const start = frame.prompt - (frame.shared ?? 0);
  const count = groups.shape[0];
  const last = count ? Math.ceil((at(groups, count - 1, 1) - start) / frame.block) : 0;
  return Array.from({ length: count }, (_, g) => {
    const low = at(groups, g, 0);
    if (low < start) return "prompt";
    const place = Math.floor((low - start) / frame.block) + 1;
    return `block ${place}${place === last && last > 1 ? " (last)" : ""}`;
  });
}

/** The index of the group of some lane that has the positions of another lane's group; -1 for none. */
export function sameGroup(groups: NdArray, others: NdArray, group: number): number {
  const bounds = (of: NdArray, g: number): string => [at(of, g, 0), at(of, g, 1)].join();
  const count = groups.shape[0];
  return Array.from({ length: count }, (_, g) => bounds(groups, g)).indexOf(bounds(others, group));
}

/** A drift as a cosine and as 1 − cosine; NaN is unknown. */
export function cosineText(drift: number): string {
  if (Number.isNaN(drift)) return "unknown";
  const small = drift < 1e-4 ? "below 0.0001" : drift.toPrecision(2);
  return `cosine ${(1 - drift).toFixed(4)} (1 − cosine ${small})`;
}

/** Compared steps of a run, and the steps of the runs that it continues. */
interface Compared {
  steps: readonly number[];
  before: number;
}

/** A step that is compared in both lanes, counted with those before a branch, and its indices. */
export interface CommonStep {
  step: number;
  a: number;
  b: number;
}

/** The steps that are compared in both lanes. */
export function commonSteps(a: Compared, b: Compared): CommonStep[] {
  return a.steps.flatMap((own, i) => {
    const other = b.steps.indexOf(own + a.before - b.before);
    return other < 0 ? [] : [{ step: own + a.before, a: i, b: other }];
  });
}

/** The last compared step that is not after a step of the run; the first if there is none. */
export function comparedUpTo(steps: readonly number[], step: number): number {
  return Math.max(
    steps.findLastIndex((compared) => compared <= step),
    0,
  );
}
