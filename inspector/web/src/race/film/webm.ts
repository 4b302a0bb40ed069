/**
 * The duration of WebM files. A browser writes a recording without one, because it does not know
 * how long it will be; a player then shows no length and cannot jump to a moment.
 */

const SEGMENT = 0x18538067;
const INFO = 0x1549a966;
const DURATION = 0x4489;

interface Element {
  id: number;
  /** Where the size, the content and the next element begin. */
  sizeAt: number;
  from: number;
  to: number;
}

/** The length in bytes of a number of variable length by its first byte; 0 if it is not one. */
function lengthOf(first: number): number {
  return first ? Math.clz32(first) - 23 : 0;
}

function elementAt(bytes: Uint8Array, at: number): Element | null {
  const idLength = lengthOf(bytes[at] ?? 0);
  const sizeAt = at + idLength;
  const sizeLength = lengthOf(bytes[sizeAt] ?? 0);
  if (!idLength || !sizeLength || sizeAt + sizeLength > bytes.length) return null;
  let id = 0;
  for (let i = at; i < sizeAt; i++) id = id * 256 + bytes[i];
  let size = bytes[sizeAt] & (0xff >> sizeLength);
  let unknown = size === 0xff >> sizeLength;
  for (let i = sizeAt + 1; i < sizeAt + sizeLength; i++) {
    size = size * 256 + bytes[i];
    unknown &&= bytes[i] === 0xff;
  }
  const from = sizeAt + sizeLength;
  return { id, sizeAt, from, to: unknown ? bytes.length : from + size };
}

/** The first element of an id between two places; null if there is none. */
function find(bytes: Uint8Array, id: number, from: number, to: number): Element | null {
  for (let at = from; at < to;) {
    const found = elementAt(bytes, at);
    if (!found || found.id === id) return found;
    at = found.to;
  }
  return null;
}

/**
 * The file with a duration in milliseconds. A file of another form, one that states its duration,
 * and one whose segment has a size are returned as they are.
 */
export function withDuration(bytes: Uint8Array<ArrayBuffer>, ms: number): Uint8Array<ArrayBuffer> {
  const segment = find(bytes, SEGMENT, 0, bytes.length);
  if (!segment || segment.to !== bytes.length) return bytes;
  const info = find(bytes, INFO, segment.from, segment.to);
  if (!info || info.to > bytes.length || find(bytes, DURATION, info.from, info.to)) return bytes;
  const size = info.to - info.from + 11;
  const added = new DataView(new ArrayBuffer(8 + size));
  added.setUint32(0, 0x01000000); // the size of the element, in eight bytes
  added.setUint32(4, size);
  const content = new Uint8Array(added.buffer);
  content.set(bytes.subarray(info.from, info.to), 8);
  added.setUint16(size - 3, DURATION);
  added.setUint8(size - 1, 0x88); // the content has eight bytes
  added.setFloat64(size, ms);
  const out = new Uint8Array(info.sizeAt + content.length + bytes.length - info.to);
  out.set(bytes.subarray(0, info.sizeAt));
  out.set(content, info.sizeAt);
  out.set(bytes.subarray(info.to), info.sizeAt + content.length);
  return out;
}
