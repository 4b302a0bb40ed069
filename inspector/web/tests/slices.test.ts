import assert from "node:assert/strict";
import test from "node:test";
import { refusalWords } from "../src/inspect/server_slices.ts";
import { decoded, type Query, type Slice, type SliceSource } from "../src/inspect/slice.ts";
import { Slices } from "../src/inspect/slices.ts";
import type { Missing } from "../src/inspect/view.ts";
import { bytes } from "./inspected.ts";

/** A request that a test answers. */
interface Asked {
  query: Query;
  version: string;
  signal: AbortSignal;
  give: (found: Slice | Missing) => void;
  fail: (error: Error) => void;
}

function sliceOf(size = 1): Slice {
  return { arrays: { cells: bytes([size], new Array<number>(size).fill(0)) }, facts: {} };
}

function store(
  options: { budget?: number; atOnce?: number; now?: () => number; patience?: number } = {},
): {
  slices: Slices;
  asked: Asked[];
  come: () => number;
} {
  const asked: Asked[] = [];
  const source: SliceSource = ({ version }, query, signal) =>
    new Promise((give, fail) => asked.push({ query, version, signal, give, fail }));
  let count = 0;
  const slices = new Slices({ source, onCome: () => count++, ...options });
  slices.reset("run", "1");
  return { slices, asked, come: () => count };
}

const ask = (layer: number): Query => ({ view: "drift", layer });
const layers = (asked: readonly Asked[]): (string | number | undefined)[] =>
  asked.map(({ query }) => query.layer);

/** Let the promises that are settled go on. */
async function settled(): Promise<void> {
  await new Promise((done) => setImmediate(done));
}

test("a slice is asked for once, and given when it has come", async () => {
  const { slices, asked, come } = store();
  assert.equal(slices.get("a", ask(1)), undefined);
  assert.equal(slices.get("a", { layer: 1, view: "drift", part: undefined }), undefined);
  assert.equal(asked.length, 1);
  const slice = sliceOf();
  asked[0].give(slice);
  await settled();
  assert.equal(slices.get("a", ask(1)), slice);
  assert.deepEqual([asked.length, come()], [1, 1]);
});

test("lanes and parameters have slices of their own", () => {
  const { slices, asked } = store();
  slices.get("a", ask(1));
  slices.get("b", ask(1));
  slices.get("a", ask(2));
  assert.equal(asked.length, 3);
});

test("few requests are sent at a time, that of the newest wish first", async () => {
  const { slices, asked } = store({ atOnce: 2 });
  for (const layer of [1, 2, 3, 4]) slices.get("a", ask(layer));
  assert.deepEqual(layers(asked), [1, 2]);
  asked[0].give(sliceOf());
  await settled();
  assert.deepEqual(layers(asked), [1, 2, 4]);
});

test("a wish that the next drawing does not repeat is not sent", async () => {
  const { slices, asked } = store({ atOnce: 1 });
  slices.begin();
  slices.get("a", ask(1));
  slices.get("a", ask(2));
  slices.end();
  slices.begin();
  slices.get("a", ask(3));
  slices.end();
  asked[0].give(sliceOf());
  await settled();
  assert.deepEqual(layers(asked), [1, 3]);
  asked[1].give(sliceOf());
  await settled();
  assert.equal(asked.length, 2);
});

test("what is wanted ahead of time waits until nothing else is on its way", async () => {
  const { slices, asked } = store({ atOnce: 1, patience: 0 });
  const pause = (): Promise<void> => new Promise((done) => setTimeout(done, 5));
  slices.get("a", ask(1));
  slices.ahead("a", ask(2));
  await pause();
  assert.equal(asked.length, 1);
  asked[0].give(sliceOf());
  await settled();
  slices.ahead("a", ask(3));
  slices.begin();
  slices.ahead("a", ask(2));
  await pause();
  assert.deepEqual(layers(asked), [1, 2]);
});

test("another version aborts the requests and forgets the slices", async () => {
  const { slices, asked, come } = store();
  slices.get("a", ask(1));
  slices.get("a", ask(2));
  asked[1].give(sliceOf());
  await settled();
  slices.reset("run", "2");
  assert.equal(asked[0].signal.aborted, true);
  asked[0].give(sliceOf());
  await settled();
  assert.equal(come(), 1);
  assert.equal(slices.get("a", ask(2)), undefined);
  assert.equal(asked[2].version, "2");
  assert.equal(slices.bytes, 0);
});

test("another view aborts what it does not need", () => {
  const { slices, asked } = store();
  slices.begin();
  slices.get("a", ask(1));
  slices.get("a", ask(2));
  slices.end();
  slices.begin();
  slices.get("a", ask(2));
  slices.end();
  slices.supersede();
  assert.deepEqual(
    asked.map(({ signal }) => signal.aborted),
    [true, false],
  );
});

test("beyond the budget, the slices that were used least recently are dropped", async () => {
  const { slices, asked } = store({ budget: 25 });
  for (const layer of [1, 2, 3]) {
    slices.begin();
    slices.get("a", ask(layer));
    asked[layer - 1].give(sliceOf(10));
    await settled();
    if (layer === 2) slices.get("a", ask(1));
  }
  assert.equal(slices.bytes, 20);
  slices.begin();
  assert.ok(slices.get("a", ask(1)));
  assert.ok(slices.get("a", ask(3)));
  assert.equal(slices.get("a", ask(2)), undefined);
});

test("a refusal is given as it is; a request that failed is repeated after a while", async () => {
  let now = 0;
  const { slices, asked } = store({ now: () => now });
  slices.get("a", ask(1));
  slices.get("a", ask(2));
  asked[0].give({ missing: "no drifts" });
  asked[1].fail(new Error("offline"));
  await settled();
  assert.deepEqual(slices.get("a", ask(1)), { missing: "no drifts" });
  assert.match(JSON.stringify(slices.get("a", ask(2))), /could not be read/);
  assert.equal(asked.length, 2);
  now = 5000;
  assert.equal(slices.get("a", ask(2)), undefined);
  assert.equal(asked.length, 3);
});

test("a message has a header and arrays at their offsets", () => {
  const header = JSON.stringify({
    arrays: [
      { name: "a", type: "u1", shape: [2], offset: 0 },
      { name: "b", type: "f4", shape: [1, 2], offset: 8 },
    ],
    facts: { every: 2 },
  });
  const length = Math.ceil((header.length + 4) / 8) * 8 - 4;
  const message = new ArrayBuffer(4 + length + 16);
  new DataView(message).setUint32(0, length, true);
  new Uint8Array(message, 4).set(new TextEncoder().encode(header.padEnd(length)));
  new Uint8Array(message, 4 + length).set([7, 9]);
  new Float32Array(message, 4 + length + 8, 2).set([0.5, 1.5]);
  const { arrays, facts } = decoded(message);
  assert.deepEqual([...arrays.a.values], [7, 9]);
  assert.deepEqual([arrays.b.shape, [...arrays.b.values]], [[1, 2], [0.5, 1.5]]); // prettier-ignore
  assert.deepEqual(facts, { every: 2 });
});

test("a refusal is said plainly", () => {
  assert.equal(refusalWords(404, { detail: "This run has no guider." }), "This run has no guider.");
  assert.match(refusalWords(409, { detail: "version: …" }), /^The run has changed/);
  assert.match(refusalWords(413, { detail: "too large" }), /cannot draw this: too large\.$/);
});
