import assert from "node:assert/strict";
import { test } from "node:test";
import { withDuration } from "../src/race/film/webm.ts";

const HEADER = [0x1a, 0x45, 0xdf, 0xa3, 0x81, 0x00];
const SEGMENT = [0x18, 0x53, 0x80, 0x67];
const UNKNOWN = [0x01, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff];
const SCALE = [0x2a, 0xd7, 0xb1, 0x83, 0x0f, 0x42, 0x40]; // a million nanoseconds
const INFO = [0x15, 0x49, 0xa9, 0x66, 0x80 + SCALE.length, ...SCALE];
const CLUSTER = [0x1f, 0x43, 0xb6, 0x75, ...UNKNOWN, 1, 2, 3];

function file(...parts: number[][]): Uint8Array<ArrayBuffer> {
  return Uint8Array.from(parts.flat());
}

test("a recording gets its duration, and keeps everything else", () => {
  const made = withDuration(file(HEADER, SEGMENT, UNKNOWN, INFO, CLUSTER), 1500);
  const value = [0x44, 0x89, 0x88, 0x40, 0x97, 0x70, 0, 0, 0, 0, 0]; // 1500 in eight bytes
  const size = [0x01, 0, 0, 0, 0, 0, 0, SCALE.length + 11];
  const info = [...INFO.slice(0, 4), ...size, ...SCALE, ...value];
  assert.deepEqual(made, file(HEADER, SEGMENT, UNKNOWN, info, CLUSTER));
});

test("a file that states its duration stays as it is", () => {
  const once = withDuration(file(HEADER, SEGMENT, UNKNOWN, INFO, CLUSTER), 1500);
  assert.equal(withDuration(once, 99), once);
});

test("what is not such a file stays as it is", () => {
  for (const bytes of [
    file(),
    file([0, 1, 2]),
    file(HEADER, SEGMENT),
    file(HEADER, SEGMENT, [0x84]),
  ])
    assert.equal(withDuration(bytes, 5), bytes);
});
