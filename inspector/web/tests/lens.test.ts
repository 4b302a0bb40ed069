import assert from "node:assert/strict";
import test from "node:test";
import type { Documents } from "../src/inspect/replay_slices/documents.ts";
import {
  lensIds,
  lensLayers,
  lensMap,
  LENS,
  meanStay,
  settledShares,
  tokenAt,
  turnsOf,
  type LensData,
  type LensIds,
  type LensLayers,
} from "../src/inspect/lens.ts";
import { bytes, cutPart, frame, ints } from "./inspected.ts";

/** Two probed steps, two layers, positions 3 to 5 of the canvas of `frame`; the last has no logits. */
function documents(): Partial<Documents> {
  const run = [1, 5, 9, 2, 5, 0];
  const exact = [1, 6, 9, 2, 7, 8];
  const codes = [10, 20, 30, 40, 50, 255, 11, 21, 31, 41, 51, 61];
  const lens: Documents["lens"] = {
    step: ints([2], [0, 2]),
    position: ints([3], [3, 4, 5]),
    compared: ints([2, 2], [3, 2, 3, 2]),
    differing: ints([2, 2], [0, 0, 1, 1]),
    predicted: ints([2], [2, 2]),
    flips: ints([2], [0, 1]),
    shift: 1,
    ids: ints([2, 2, 2, 3], [...exact, ...exact, ...run, ...exact]),
    probs: bytes([2, 2, 2, 3], [...codes, ...codes]),
    token_probs: bytes([2, 2, 2, 3], [...codes.map((code) => code && 0), ...codes.map(() => 7)]),
    stays: ints([2, 2, 3], [1, 1, 1, 1, 1, 1, 1, 0, -1, 1, 1, 1]),
    turned: ints([2, 3], [-1, -1, -1, -1, 0, -1]),
    pieces: { 1: "a", 2: "b", 5: "<i>", 7: "c", 9: "never asked" },
  };
  return { lens, frame: frame() };
}

test("the tokens that reuse turned come with their layer and both texts", () => {
  const found = cutPart<LensLayers>(documents(), lensLayers(1));
  assert.deepEqual(turnsOf(found), [{ place: 1, layer: 0, run: "“<i>”", exact: "“c”" }]);
  assert.deepEqual(turnsOf(cutPart<LensLayers>(documents(), lensLayers(0))), []);
});

test("a token without a text is named by its id", () => {
  const found = cutPart<LensLayers>(documents(), lensLayers(1));
  found.pieces = {};
  assert.equal(turnsOf(found)[0].exact, "id 7");
});

test("only positions with a prediction in both passes count as decided", () => {
  const found = cutPart<LensLayers>(documents(), lensLayers(1));
  assert.deepEqual(settledShares(found, 0, 2), [0.5, 1]);
  assert.deepEqual(settledShares(found, 1, 2), [0, 1]);
  assert.equal(meanStay(found, 0), 1.5);
  assert.equal(meanStay(found, 1), 2);
});

test("without predictions nothing is known to be decided", () => {
  const found = { stays: ints([2, 1], [-1, 0]) } as LensLayers;
  assert.ok(Number.isNaN(settledShares(found, 1, 1)[0]));
  assert.ok(Number.isNaN(meanStay(found, 1)));
});

test("a file's map has the codes of the probe and the pass at their places on the canvas", () => {
  const cells = (pass: "run" | "exact", of: string): number[] => [
    ...cutPart<{ cells: { values: Uint8Array } }>(documents(), lensMap(1, pass, of)).cells.values,
  ];
  assert.deepEqual(cells("run", "best"), [255, 255, 255, 10, 20, 30, 255, 255, 255, 40, 50, 255]);
  assert.deepEqual(cells("exact", "best").slice(9), [41, 51, 61]);
  assert.deepEqual(cells("exact", "token").slice(3, 6), [7, 7, 7]);
});

test("a file's ids and facts are those of the document", () => {
  const ids = cutPart<LensIds>(documents(), lensIds(1, 0, 2, 3));
  assert.equal(tokenAt(ids, 0, 1, 1), 5);
  assert.equal(tokenAt(ids, 1, 1, 1), 7);
  assert.deepEqual(Object.keys(ids.pieces), ["1", "2", "5", "7", "9"]);
  const facts = cutPart<LensData>(documents(), LENS);
  assert.deepEqual([facts.shift, ...facts.step.values], [1, 0, 2]);
});

test("ids are asked for in windows that stay small, and are unknown outside of them", () => {
  assert.deepEqual(lensIds(0, 5, 32, 1024), {
    ...{ view: "lens", part: "ids", probe: 0, token_from: 0, token_to: 1024 },
  });
  const { token_from: from, token_to: to } = lensIds(0, 4000, 1000, 5000);
  assert.deepEqual([from, to], [3927, 4114]);
  const data: LensIds = { ids: ints([2, 1, 1], [3, 4]), token_from: 7, token_to: 8, pieces: {} };
  assert.equal(tokenAt(data, 1, 0, 7), 4);
  assert.equal(tokenAt(data, 1, 0, 8), null);
  assert.equal(tokenAt(data, 1, 0, 6), null);
});
