/** Small documents of the inspector, written by hand. */
import type { NdArray } from "../src/inspect/arrays.ts";
import type { Documents } from "../src/inspect/replay_slices/documents.ts";
import { cutSlice } from "../src/inspect/replay_slices/index.ts";
import { documentOf, type Query } from "../src/inspect/slice.ts";
import type { Frame } from "../src/inspect/view.ts";

/** An array of whole numbers. */
export function ints(shape: number[], values: readonly number[]): NdArray<Int32Array> {
  return { shape, values: Int32Array.from(values) };
}

/** An array of codes. */
export function bytes(shape: number[], values: readonly number[]): NdArray<Uint8Array> {
  return { shape, values: Uint8Array.from(values) };
}

/** An array of fractions. */
export function floats(shape: number[], values: readonly number[]): NdArray<Float32Array> {
  return { shape, values: Float32Array.from(values) };
}

/** The plan of a row's sites: whether K, V, attention and feed-forward are computed. */
export type SitePlan = (step: number, layer: number, site: number, position: number) => boolean;

/**
 * Three steps in two blocks of two tokens after a prompt of two, in two layers: step 1 is full,
 * step 3 begins the second block. Position 3 was known before, 2 and 4 are committed.
 */
export function frame(): Frame {
  const [steps, layers, positions] = [3, 2, 6];
  return {
    level: "layers",
    lacks: [],
    narrowed: false,
    causal: false,
    positions,
    prompt: 2,
    block: 2,
    layers,
    steps,
    first: 0,
    revealed: ints([positions], [-1, -1, 0, -1, 2, -1]),
    before: bytes([positions], [0, 0, 0, 1, 0, 0]),
    ids: ints([positions], [1, 2, 3, 4, 5, 6]),
    blocks: ints([steps], [0, 0, 1]),
    kinds: bytes([steps], [0, 1, 1]),
    rows: ints([steps], [6, 1, 4]),
    sight: ints([steps], [6, 6, 6]),
  };
}

/** The plan of the run of `frame`, as a document of a replay file. */
export function planOf(plan: SitePlan): Documents["plan"] {
  const { steps, layers, positions } = frame();
  const packed: number[] = [];
  for (let step = 0; step < steps; step++)
    for (let layer = 0; layer < layers; layer++)
      for (let site = 0; site < 4; site++) {
        let byte = 0;
        for (let x = 0; x < positions; x++) if (plan(step, layer, site, x)) byte |= 128 >> x;
        packed.push(byte);
      }
  return { plan: bytes([steps, layers, 4, 1], packed) };
}

/** The slice of a query as a document, cut from documents of a replay file. */
export function cutPart<Part extends object>(documents: Partial<Documents>, query: Query): Part {
  return documentOf<Part>(cutSlice(documents, query));
}
