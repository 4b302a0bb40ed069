/** Arrays of the server (`inspector.page_data.packing`). */

/** The values of an array in row order. */
export type Values = Uint8Array | Uint16Array | Int32Array | Float32Array;

/** An array with its shape. */
export interface NdArray<V extends Values = Values> {
  shape: number[];
  values: V;
}

/** An array as the server sends it: deflated little-endian bytes in base64. */
interface Packed {
  type: TypeName;
  shape: number[];
  data: string;
}

const TYPES = { u1: Uint8Array, u2: Uint16Array, i4: Int32Array, f4: Float32Array };

/** The name of a type of values. */
export type TypeName = keyof typeof TYPES;

/** Values at a place of a buffer, without a copy. */
export function typedArray(
  type: TypeName,
  buffer: ArrayBuffer,
  offset: number,
  count: number,
): Values {
  return new TYPES[type](buffer, offset, count);
}

function isPacked(item: unknown): item is Packed {
  const found = item as Partial<Packed> | null;
  return Boolean(
    found && typeof found === "object" && found.shape && found.type && found.type in TYPES,
  );
}

async function inflate(packed: Packed): Promise<NdArray> {
  const bytes = Uint8Array.from(atob(packed.data), (char) => char.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  const raw = await new Response(stream).arrayBuffer();
  return { shape: packed.shape, values: new TYPES[packed.type](raw) };
}

/** A document of the server with its arrays unpacked. */
export async function unpack(document: Record<string, unknown>): Promise<Record<string, unknown>> {
  const out: Record<string, unknown> = {};
  for (const [name, item] of Object.entries(document)) {
    out[name] = isPacked(item) ? await inflate(item) : item;
  }
  return out;
}

/** The value at an index. */
export function at(array: NdArray, ...index: number[]): number {
  let place = 0;
  for (let i = 0; i < index.length; i++) place = place * array.shape[i] + index[i];
  return array.values[place];
}

/** The part of an array at an index of an axis, without this axis; a copy. */
export function take({ shape, values }: NdArray, axis: number, index: number): NdArray {
  const size = (sides: readonly number[]): number => sides.reduce((all, side) => all * side, 1);
  const [before, after] = [size(shape.slice(0, axis)), size(shape.slice(axis + 1))];
  const out = values.slice(0, before * after);
  for (let i = 0; i < before; i++) {
    const from = (i * shape[axis] + index) * after;
    out.set(values.subarray(from, from + after), i * after);
  }
  return { shape: shape.filter((_, i) => i !== axis), values: out };
}

/** The bit of a position in an array whose last axis has eight positions in each byte. */
export function bit(array: NdArray, position: number, ...index: number[]): number {
  return (at(array, ...index, position >> 3) >> (7 - (position & 7))) & 1;
}
