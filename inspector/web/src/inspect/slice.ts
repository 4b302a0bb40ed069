/** Slices: parts of a view's data, as the server cuts them (`inspector.slices`). */
import type { LaneName } from "../race/messages.ts";
import type { NdArray } from "./arrays.ts";
import { typedArray, type TypeName } from "./arrays.ts";
import type { Missing } from "./view.ts";

/** Arrays and other values by name. */
export interface Slice {
  arrays: Record<string, NdArray>;
  facts: Record<string, unknown>;
}

/** What a slice is asked for: its view, its part and the part's parameters. */
export interface Query {
  view: string;
  part?: string;
  [parameter: string]: string | number | undefined;
}

/** Gives slices: the server, or the documents of a replay file. `run` and `version` name the data. */
export type SliceSource = (
  data: { run: string; version: string; lane: LaneName },
  query: Query,
  signal: AbortSignal,
) => Promise<Slice | Missing>;

const DOCUMENTS = new WeakMap<Slice, object>();
const NUMBERS = new WeakMap<Slice, number>();
let numbered = 0;

/** Arrays and facts of a slice as one document; the same one for the same slice. */
export function documentOf<Data extends object>(slice: Slice): Data {
  const known = DOCUMENTS.get(slice) ?? { ...slice.facts, ...slice.arrays };
  DOCUMENTS.set(slice, known);
  return known as Data;
}

/** A number that no other slice has, for the keys of figures. */
export function numberOf(slice: Slice): number {
  const known = NUMBERS.get(slice) ?? ++numbered;
  NUMBERS.set(slice, known);
  return known;
}

/** The bytes of a slice's arrays. */
export function sizeOf({ arrays }: Slice): number {
  return Object.values(arrays).reduce((sum, { values }) => sum + values.byteLength, 0);
}

/** The header of a message. */
interface Header {
  arrays: { name: string; type: TypeName; shape: number[]; offset: number }[];
  facts: Record<string, unknown>;
}

/**
 * The slice of a message: the length of a header (4 bytes, little-endian), the header as JSON, and
 * the arrays, whose offsets count from the end of the header.
 */
export function decoded(message: ArrayBuffer): Slice {
  const length = new DataView(message).getUint32(0, true);
  const start = 4 + length;
  const text = new TextDecoder().decode(new Uint8Array(message, 4, length));
  const header = JSON.parse(text) as Header;
  const arrays: Slice["arrays"] = {};
  for (const { name, type, shape, offset } of header.arrays) {
    const count = shape.reduce((product, side) => product * side, 1);
    arrays[name] = { shape, values: typedArray(type, message, start + offset, count) };
  }
  return { arrays, facts: header.facts };
}

/** The names and values of a query's parameters, in an order of their own. */
export function parametersOf(query: Query): [string, string][] {
  return Object.entries(query)
    .flatMap(([name, value]) =>
      value === undefined ? [] : [[name, String(value)] as [string, string]],
    )
    .sort(([one], [other]) => (one < other ? -1 : 1));
}
