import assert from "node:assert/strict";
import test from "node:test";
import { DRIFT, NO_DATA } from "../src/inspect/codes.ts";
import { cosineText, groupNames, pairIndex, StepPairs } from "../src/inspect/step_pairs.ts";
import { bytes, ints } from "./inspected.ts";

// Three compared steps (0, 4, 8), K and V, one layer, two groups.
const DATA = {
  codes: bytes(
    [6, 2, 1, 2],
    [0, 1, 2, 3, 4, 5].flatMap((pair) => [10 * pair, 10 * pair + 1, 100 + pair, NO_DATA]),
  ),
  steps: ints([3], [0, 4, 8]),
  groups: ints([2, 2], [0, 6, 6, 10]),
};

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

test("a drift is that of its pair, kind, layer and group", () => {
  assert.equal(new StepPairs(DATA, "k").drift(2, 1, 0, 1), DRIFT[41]);
  assert.equal(new StepPairs(DATA, "v").drift(0, 2, 0, 0), DRIFT[103]);
});

test("the mean drift is over neighbouring compared steps", () => {
  const mean = new StepPairs(DATA, "k").meanDrift(0, 0);
  assert.ok(Math.abs(mean - (DRIFT[10] + DRIFT[40]) / 2) < 1e-12);
});

test("a mean with an unknown drift is unknown", () => {
  assert.ok(Number.isNaN(new StepPairs(DATA, "v").meanDrift(0, 1)));
});

test("the means of K and of V are kept apart", () => {
  const k = new StepPairs(DATA, "k").meanDrift(0, 0);
  assert.notEqual(new StepPairs(DATA, "v").meanDrift(0, 0), k);
});

test("a step between two compared ones stands for the earlier one", () => {
  const pairs = new StepPairs(DATA, "k");
  assert.deepEqual(
    [0, 3, 4, 30].map((step) => pairs.upTo(step)),
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
