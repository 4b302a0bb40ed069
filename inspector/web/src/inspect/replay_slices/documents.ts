/** The documents of a replay file, with their arrays unpacked: whole views of a lane. */
import type { NdArray } from "../arrays.ts";
import type { Guided } from "../guided.ts";
import type { LensData } from "../lens.ts";
import type { Query, Slice } from "../slice.ts";

/** S steps, L layers, T positions, E probed steps, N candidates, J drafted tokens. */
export interface Documents {
  frame: { positions: number; prompt: number; steps: number; layers: number };
  why: object;
  /** `plan`: bits of the rows recomputed [S, L, 4, T / 8]. */
  plan: { plan: NdArray };
  /** Drift codes [S, L, quantities, T]. */
  drift: { quantities: string[]; drift: NdArray };
  /** Numbers of changed experts [S, L, T] and, of the E probed steps, [E, L, T]. */
  experts: {
    active: number;
    count: number;
    changes: NdArray;
    probe_step: NdArray;
    probed: NdArray;
  };
  schedule: { portion: NdArray };
  /** `counts`: [L, 4, 2, bins]. */
  queries: { counts: NdArray; reuse: NdArray };
  /** [pairs, L, bins, bins], [pairs, L + 1, 3] and [pairs, L + 1]; steps counted: every n-th. */
  scatter: {
    pairs: [string, string][];
    counts: NdArray;
    stats: NdArray;
    rows: NdArray;
    every: number;
  };
  /** Codes of the lower triangle of pairs of compared steps [pairs, 2, L, groups]. */
  similarity: { codes: NdArray; steps: NdArray; groups: NdArray };
  error: ErrorDocument;
  lens: LensDocument;
  candidates: CandidateDocument;
  guider: GuiderDocument;
}

/** Codes [E, L, 4, T], and what is known of each compared prediction, R of them. */
interface ErrorDocument {
  step: NdArray;
  error: NdArray;
  mean: NdArray;
  recall: NdArray;
  chance: NdArray;
  proxy: NdArray | null;
  true: NdArray | null;
  row: NdArray;
  position: NdArray;
  tv: NdArray;
  top: NdArray;
  pieces: Record<string, unknown>;
}

/** Best ids, codes of their probabilities and of the exact pass's prediction [E, 2, L, n]. */
interface LensDocument extends LensData {
  ids: NdArray;
  probs: NdArray;
  token_probs: NdArray;
  /** [E, 2, n] and [E, n]. */
  stays: NdArray;
  turned: NdArray;
  pieces: Record<string, unknown>;
}

interface CandidateDocument {
  step: NdArray;
  position: NdArray;
  ids: NdArray;
  probs: NdArray;
  chosen: NdArray;
  pieces: Record<string, unknown>;
}

/** Verdicts [S, answer tokens], drafted tokens [J] and the guider's [H]. */
interface GuiderDocument extends Guided {
  cells: NdArray;
  span: NdArray;
  draft_step: NdArray;
  draft_position: NdArray;
  pieces: unknown;
  guider_pieces: unknown;
  [name: string]: unknown;
}

/** Cuts a slice from the documents that it needs. */
export interface Cutter {
  needs: readonly (keyof Documents)[];
  cut: (documents: Documents, query: Query) => Slice;
}

/** The cutters of a view by part; the first is that of a query without a part. */
export type Cutters = Readonly<Record<string, Cutter>>;

/** A number of a query; `none` if it has none. */
export function numberIn(query: Query, name: string, none = 0): number {
  return Number(query[name] ?? none);
}

/** The slice of some arrays. */
export function sliceOf(arrays: Slice["arrays"], facts: Slice["facts"] = {}): Slice {
  return { arrays, facts };
}

/** The slice of a document, which mixes arrays and other values. */
export function wholeSlice(document: object): Slice {
  const [arrays, facts]: [Slice["arrays"], Slice["facts"]] = [{}, {}];
  for (const [name, item] of Object.entries(document)) {
    if (isArray(item)) arrays[name] = item;
    else facts[name] = item;
  }
  return { arrays, facts };
}

function isArray(item: unknown): item is NdArray {
  return typeof item === "object" && item !== null && "shape" in item && "values" in item;
}

/** The slice of a heat map with all its cells. */
export function mapSlice(cells: NdArray, rows: string, columns: string): Slice {
  const axis = (name: string, count: number): object => ({ name, from: 0, to: count, factor: 1 });
  return sliceOf(
    { cells },
    { rows: axis(rows, cells.shape[0]), columns: axis(columns, cells.shape[1]), by: "none" },
  );
}
