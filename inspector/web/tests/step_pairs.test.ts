import assert from "node:assert/strict";
import test from "node:test";
import { DRIFT, NO_DATA } from "../src/inspect/codes.ts";
import { at, type NdArray } from "../src/inspect/arrays.ts";
import { changeOf, pairIndex } from "../src/inspect/replay_slices/similarity.ts";
import { comparedUpTo, cosineText, groupNames, sameGroup } from "../src/inspect/step_pairs.ts";
import { bytes, cutPart, ints } from "./inspected.ts";

// Three compared steps, K and V, one layer, two groups.
const CODES = bytes(
  [6, 2, 1, 2],
  [0, 1, 2, 3, 4, 5].flatMap((pair) => [10 * pair, 10 * pair + 1, 100 + pair, NO_DATA]),
);

test("pairs are counted along the lower triangle, in either order", () => {
  const found = [
    [0, 0],
    [1, 0],
    [1, 1],
    [2, 0],
    [2, 1],
    [2, 2],
  ].map(([a, b]) => pairIndex(a, b));
  assert.deepEqual(found, [0, 1, 2, 3, 4, 5]);
  assert.equal(pairIndex(0, 2), pairIndex(2, 0));
});

test("the change is the mean over neighbouring compared steps, of K and of V", () => {
  const change = changeOf(CODES, 3);
  const k = (DRIFT[10] + DRIFT[40]) / 2;
  assert.deepEqual(change.shape, [2, 1, 2]);
  assert.ok(Math.abs(at(change, 0, 0, 0) - k) < 1e-6);
  assert.ok(Math.abs(at(change, 1, 0, 0) - (DRIFT[101] + DRIFT[104]) / 2) < 1e-6);
  assert.ok(Number.isNaN(at(change, 1, 0, 1)), "a mean of unknown drifts is unknown");
});

test("a step without a value is left out of the mean", () => {
  const codes = bytes([6, 1, 1, 1], [0, NO_DATA, 0, 0, 40, 0]);
  assert.ok(Math.abs(at(changeOf(codes, 3), 0, 0, 0) - DRIFT[40]) < 1e-6);
});

test("a row has a compared step against those up to it", () => {
  const similarity = {
    codes: CODES,
    steps: ints([3], [0, 4, 8]),
    groups: ints([2, 2], [0, 6, 6, 10]),
  };
  const query = { view: "similarity", part: "row", quantity: "v", layer: 0, index: 1 };
  const { codes } = cutPart<{ codes: NdArray }>({ similarity }, query);
  assert.deepEqual(
    [codes.shape, [...codes.values]],
    [
      [2, 2],
      [101, NO_DATA, 102, NO_DATA],
    ],
  );
});

test("a step between two compared ones stands for the earlier one", () => {
  assert.deepEqual(
    [0, 3, 4, 30].map((step) => comparedUpTo([0, 4, 8], step)),
    [0, 0, 1, 2],
  );
});

test("groups are named after the prompt and their blocks", () => {
  const groups = ints([3, 2], [0, 6, 6, 10, 10, 14]);
  assert.deepEqual(groupNames(groups, { prompt: 6, block: 4, positions: 14 }), [
    "prompt",
    "block 1",
    "block 2 (last)",
  ]);
});

test("the only block is not called the last one", () => {
  const groups = ints([1, 2], [6, 10]);
  assert.deepEqual(groupNames(groups, { prompt: 6, block: 4, positions: 10 }), ["block 1"]);
});

test("a drift is written as a cosine, unless it is unknown", () => {
  assert.equal(cosineText(0.25), "cosine 0.7500 (1 − cosine 0.25)");
  assert.equal(cosineText(1e-5), "cosine 1.0000 (1 − cosine below 0.0001)");
  assert.equal(cosineText(NaN), "unknown");
});

test("a group of another lane is found by its positions, not by its place or name", () => {
  const short = ints([3, 2], [0, 8, 8, 24, 24, 40]);
  const long = ints([4, 2], [0, 8, 8, 24, 24, 40, 40, 56]);
  assert.equal(sameGroup(long, short, 2), 2);
  assert.equal(sameGroup(short, long, 3), -1);
  const unprompted = ints([2, 2], [8, 24, 24, 40]);
  assert.equal(sameGroup(unprompted, short, 2), 1);
});
