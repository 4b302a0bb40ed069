/** Slices of the comparison of steps. */
import { at, type NdArray } from "../arrays.ts";
import { DRIFT } from "../codes.ts";
import { mapSlice, numberIn, sliceOf, type Cutters } from "./documents.ts";

const KINDS = ["k", "v"];

/** The index of a pair of compared steps, in the lower triangle of all pairs, by rows. */
export function pairIndex(one: number, other: number): number {
  const [high, low] = one < other ? [other, one] : [one, other];
  return (high * (high + 1)) / 2 + low;
}

/** The drift codes of all pairs of compared steps, of a layer and a group: step by step. */
export function matrixOf(
  codes: NdArray,
  steps: number,
  place: readonly [kind: number, layer: number, group: number],
): Uint8Array {
  const out = new Uint8Array(steps * steps);
  for (let high = 0; high < steps; high++) {
    for (let low = 0; low <= high; low++) {
      const code = at(codes, pairIndex(high, low), ...place);
      out[high * steps + low] = out[low * steps + high] = code;
    }
  }
  return out;
}

/** Mean of the known drifts from each compared step to the next [2, L, groups]; NaN if none is. */
export function changeOf(codes: NdArray, steps: number): NdArray {
  const [, kinds, layers, groups] = codes.shape;
  const values = new Float32Array(kinds * layers * groups);
  for (let i = 0; i < values.length; i++) {
    const place = [Math.floor(i / groups / layers), Math.floor(i / groups) % layers, i % groups];
    let [sum, count] = [0, 0];
    for (let step = 1; step < steps; step++) {
      const drift = DRIFT[at(codes, pairIndex(step, step - 1), ...place)];
      if (Number.isNaN(drift)) continue;
      sum += drift;
      count++;
    }
    values[i] = sum / count;
  }
  return { shape: [kinds, layers, groups], values };
}

export const SIMILARITY: Cutters = {
  facts: {
    needs: ["similarity"],
    cut({ similarity: { codes, steps, groups } }) {
      return sliceOf({ steps, groups, change: changeOf(codes, steps.shape[0]) });
    },
  },
  map: {
    needs: ["similarity"],
    cut({ similarity: { codes, steps } }, query) {
      const [count] = steps.shape;
      const kind = KINDS.indexOf(String(query.quantity));
      const place = [kind, numberIn(query, "layer"), numberIn(query, "group")] as const;
      const cells = { shape: [count, count], values: matrixOf(codes, count, place) };
      return mapSlice(cells, "steps", "others");
    },
  },
  row: {
    needs: ["similarity"],
    cut({ similarity: { codes } }, query) {
      const [index, layer] = [numberIn(query, "index"), numberIn(query, "layer")];
      const kind = KINDS.indexOf(String(query.quantity));
      const groups = codes.shape[3];
      const values = new Uint8Array((index + 1) * groups);
      for (let i = 0; i < values.length; i++) {
        const [other, group] = [Math.floor(i / groups), i % groups];
        values[i] = at(codes, pairIndex(index, other), kind, layer, group);
      }
      return sliceOf({ codes: { shape: [index + 1, groups], values } });
    },
  },
};
