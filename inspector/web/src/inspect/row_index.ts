import type { NdArray } from "./arrays.ts";

/** The rows of each step, by position. */
type RowIndex = Map<number, Map<number, number>>;

const INDEXES = new WeakMap<NdArray, RowIndex>();

function indexOf(steps: NdArray, positions: NdArray): RowIndex {
  const index: RowIndex = new Map();
  for (let row = 0; row < steps.values.length; row++) {
    const rows = index.get(steps.values[row]) ?? new Map<number, number>();
    rows.set(positions.values[row], row);
    index.set(steps.values[row], rows);
  }
  return index;
}

/** The row of a step and a position in lists of both, -1 if there is none. */
export function rowAt(steps: NdArray, positions: NdArray, step: number, position: number): number {
  const index = INDEXES.get(steps) ?? indexOf(steps, positions);
  INDEXES.set(steps, index);
  return index.get(step)?.get(position) ?? -1;
}
