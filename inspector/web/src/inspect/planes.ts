/** Planes of arrays, as the codes of heat maps. */
import type { NdArray } from "./arrays.ts";

/** A plane of an array. */
export interface Plane {
  /** The axes along which its rows and its columns go. */
  rows: number;
  columns: number;
  /** The index on every axis; on that of the columns, the first one. That of the rows is 0. */
  at: readonly number[];
}

/** The codes of a plane, by rows. */
export function planeCodes({ shape, values }: NdArray, { rows, columns, at }: Plane): Uint8Array {
  const strides = new Array<number>(shape.length).fill(1);
  for (let axis = shape.length - 2; axis >= 0; axis--) {
    strides[axis] = strides[axis + 1] * shape[axis + 1];
  }
  const first = at.reduce((sum, index, axis) => sum + index * strides[axis], 0);
  const [high, wide] = [shape[rows], shape[columns] - at[columns]];
  const out = new Uint8Array(high * wide);
  for (let row = 0; row < high; row++) {
    const from = first + row * strides[rows];
    if (strides[columns] === 1) out.set(values.subarray(from, from + wide), row * wide);
    else for (let x = 0; x < wide; x++) out[row * wide + x] = values[from + x * strides[columns]];
  }
  return out;
}
