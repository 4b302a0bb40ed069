/** Slices of the recorded drifts. */
import type { NdArray } from "../arrays.ts";
import { NO_DATA } from "../codes.ts";
import {
  mapSlice,
  numberIn,
  sliceOf,
  wholeSlice,
  type Cutters,
  type Documents,
} from "./documents.ts";
import { planeCodes } from "../planes.ts";
import { AGE } from "./plans.ts";

/** Rows from position `from` on with a drift code above `code`, or with any (-1) [S, L]. */
export function countAbove(drift: NdArray, quantity: number, from: number, code: number): NdArray {
  const [steps, layers, quantities, positions] = drift.shape;
  const rows = new Uint16Array(steps * layers);
  for (let cell = 0; cell < rows.length; cell++) {
    const row = (cell * quantities + quantity) * positions;
    for (let x = from; x < positions; x++) {
      const found = drift.values[row + x];
      if (found > code && found < NO_DATA) rows[cell]++;
    }
  }
  return { shape: [steps, layers], values: rows };
}

export const DRIFT_PARTS: Cutters = {
  map: {
    needs: ["drift"],
    cut({ drift }, query) {
      const [steps, layers, , positions] = drift.drift.shape;
      const quantity = drift.quantities.indexOf(String(query.quantity));
      const ofStep = query.step !== undefined;
      const place = [numberIn(query, "step"), numberIn(query, "layer"), quantity, 0];
      const values = planeCodes(drift.drift, { rows: ofStep ? 1 : 0, columns: 3, at: place });
      const shape = [ofStep ? layers : steps, positions];
      return mapSlice({ shape, values }, ofStep ? "layers" : "steps", "positions");
    },
  },
  counts: {
    needs: ["drift"],
    cut({ drift }, query) {
      const quantity = drift.quantities.indexOf(String(query.quantity));
      const from = numberIn(query, "position_from");
      return sliceOf({
        rows: countAbove(drift.drift, quantity, from, numberIn(query, "code", -1)),
      });
    },
  },
};

export const QUERIES: Cutters = {
  facts: { needs: ["queries"], cut: ({ queries }) => wholeSlice(queries) },
  histogram: {
    needs: ["queries"],
    cut({ queries }, query) {
      const { shape, values } = queries.counts;
      const size = shape[1] * shape[2] * shape[3];
      const from = numberIn(query, "layer") * size;
      const counts = { shape: shape.slice(1), values: values.slice(from, from + size) };
      return sliceOf({ counts });
    },
  },
  reuse: { needs: ["queries"], cut: ({ queries }) => sliceOf({ reuse: queries.reuse }) },
  age: AGE,
};

/** The rows of a pair by both bins, in a layer or, if `layer` is null, in all layers. */
export function rowsByBins(counts: NdArray, pair: number, layer: number | null): Int32Array {
  const [, layers, size] = counts.shape;
  const cells = size * size;
  const from = (l: number): number => (pair * layers + l) * cells;
  if (layer !== null) return Int32Array.from(counts.values.subarray(from(layer), from(layer + 1)));
  const sum = new Int32Array(cells);
  for (let l = 0; l < layers; l++)
    for (let i = 0; i < cells; i++) sum[i] += counts.values[from(l) + i];
  return sum;
}

/** Entries of an array whose first axes have a pair and a layer; all layers if it is null. */
function ofPair({ shape, values }: NdArray, pair: number, layer: number | null): NdArray {
  const [, rows, ...rest] = shape;
  const size = rest.reduce((product, side) => product * side, 1);
  const from = (pair * rows + (layer ?? 0)) * size;
  const count = layer === null ? rows : 1;
  const shapeOf = layer === null ? [rows, ...rest] : rest;
  return { shape: shapeOf, values: values.slice(from, from + count * size) };
}

function pairIn({ scatter }: Documents, x: unknown, y: unknown): number {
  return scatter.pairs.findIndex(([first, second]) => first === x && second === y);
}

export const SCATTER: Cutters = {
  pair: {
    needs: ["scatter"],
    cut(documents, query) {
      const { counts, stats, rows, every } = documents.scatter;
      const pair = pairIn(documents, query.x, query.y);
      const layer = query.layer === undefined ? null : numberIn(query, "layer");
      const [, , size] = counts.shape;
      const table = { shape: [size, size], values: rowsByBins(counts, pair, layer) };
      const found = { stats: ofPair(stats, pair, layer), rows: ofPair(rows, pair, layer) };
      return sliceOf({ counts: table, ...found }, { every });
    },
  },
};
