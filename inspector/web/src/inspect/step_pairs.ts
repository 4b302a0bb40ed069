/** The comparison of any two recorded steps of a run: drifts of K and V by layer and group. */
import { Latest } from "../base/latest.ts";
import { at, type NdArray } from "./arrays.ts";
import { DRIFT } from "./codes.ts";
import type { Frame } from "./view.ts";

/** The comparison of steps (`inspector.views.similarity`). */
export interface SimilarityData {
  /** Drift codes [pairs, 2 (K, V), layers, groups]; see `pairIndex`. */
  codes: NdArray;
  /** The compared steps, in order. */
  steps: NdArray;
  /** The first position of each group, and the one after its last: [groups, 2]. */
  groups: NdArray;
}

/** Which values are compared. */
export type Kind = "k" | "v";

/** The index of a pair of compared steps, in the lower triangle of all pairs, by rows. */
export function pairIndex(one: number, other: number): number {
  const [high, low] = one < other ? [other, one] : [one, other];
  return (high * (high + 1)) / 2 + low;
}

/** The names of the groups of positions. */
export function groupNames(
  groups: NdArray,
  frame: Pick<Frame, "prompt" | "block" | "positions">,
): string[] {
  const last = Math.ceil((frame.positions - frame.prompt) / frame.block);
  return Array.from({ length: groups.shape[0] }, (_, g) => {
    const low = at(groups, g, 0);
    if (low < frame.prompt) return "prompt";
    const place = Math.floor((low - frame.prompt) / frame.block) + 1;
    return `block ${place}${place === last && last > 1 ? " (last)" : ""}`;
  });
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

const MEANS = new Latest<SimilarityData, Float64Array>();

/** The comparison of K or of V. Steps are counted among the compared ones. */
export class StepPairs {
  /** The compared steps of the run. */
  readonly steps: readonly number[];
  readonly layers: number;
  readonly groups: number;
  private readonly kind: number;

  constructor(
    private readonly data: SimilarityData,
    kind: Kind,
  ) {
    this.steps = Array.from(data.steps.values);
    [, , this.layers, this.groups] = data.codes.shape;
    this.kind = kind === "k" ? 0 : 1;
  }

  /** The last compared step that is not after a step of the run; the first if there is none. */
  upTo(step: number): number {
    return Math.max(
      this.steps.findLastIndex((compared) => compared <= step),
      0,
    );
  }

  /** The drift code between two compared steps. */
  code(one: number, other: number, layer: number, group: number): number {
    return at(this.data.codes, pairIndex(one, other), this.kind, layer, group);
  }

  /** 1 − cosine between two compared steps; NaN if it is unknown. */
  drift(one: number, other: number, layer: number, group: number): number {
    return DRIFT[this.code(one, other, layer, group)];
  }

  /** The drift codes of all pairs of compared steps, of a layer and a group: step by step. */
  matrix(layer: number, group: number): Uint8Array {
    const { shape, values } = this.data.codes;
    const wide = this.steps.length;
    const stride = shape[1] * shape[2] * shape[3];
    const out = new Uint8Array(wide * wide);
    let from = (this.kind * this.layers + layer) * this.groups + group;
    for (let high = 0; high < wide; high++) {
      for (let low = 0; low <= high; low++, from += stride) {
        out[high * wide + low] = out[low * wide + high] = values[from];
      }
    }
    return out;
  }

  /** The mean drift from each compared step to the next, of a layer and a group. */
  meanDrift(layer: number, group: number): number {
    const means = MEANS.of(this.data, String(this.kind), () => this.means());
    return means[layer * this.groups + group];
  }

  private means(): Float64Array {
    const out = new Float64Array(this.layers * this.groups);
    const count = this.steps.length - 1;
    for (let i = 0; i < out.length; i++) {
      const [layer, group] = [Math.floor(i / this.groups), i % this.groups];
      let sum = 0;
      for (let t = 1; t <= count; t++) sum += this.drift(t, t - 1, layer, group);
      out[i] = sum / count;
    }
    return out;
  }
}
