import assert from "node:assert/strict";
import test from "node:test";
import { rowAt } from "../src/inspect/row_index.ts";
import { candidateList, candidateRow } from "../src/inspect/views/candidates.ts";
import { knownMean, predictions } from "../src/inspect/views/error.ts";
import { timeShares, usedTokens } from "../src/inspect/views/guider.ts";
import { bytes, floats, ints } from "./inspected.ts";

test("a row is found by its step and position", () => {
  const [steps, positions] = [ints([3], [0, 1, 1]), ints([3], [5, 4, 5])];
  assert.equal(rowAt(steps, positions, 1, 5), 2);
  assert.equal(rowAt(steps, positions, 0, 4), -1);
  assert.equal(rowAt(steps, positions, 2, 5), -1);
});

test("a candidate's tokens come with their texts, and the committed one", () => {
  const data = {
    step: ints([1], [3]),
    position: ints([1], [7]),
    ids: ints([1, 2], [10, 11]),
    probs: floats([1, 2], [0.75, 0.25]),
    chosen: bytes([1], [1]),
    pieces: { 10: "a" },
  };
  assert.equal(candidateRow(data, 3, 7), 0);
  assert.deepEqual(candidateList(data, 0), [
    { id: 10, piece: "a", prob: 0.75, chosen: false },
    { id: 11, piece: undefined, prob: 0.25, chosen: true },
  ]);
});

test("the map of verdicts ends after the last token that was drafted", () => {
  const names = ["accepted", "filled"] as const;
  const used = (...codes: number[]): number =>
    usedTokens({ cells: bytes([1, codes.length], codes), names });
  assert.equal(used(0, 0, 255, 1, 1), 3);
  assert.equal(used(0, 0, 255, 1, 0), 5);
});

test("the guider's time is a share of the network's and the deciding", () => {
  const time = {
    forward_ms: floats([2], [2, 4]),
    decide_ms: floats([2], [1, 1]),
    guider_ms: floats([2, 2], [1, 0.5, 1, 0.5]),
    needed: floats([2], [1, 1]),
  };
  assert.deepEqual(timeShares(time), { whole: 0.25, prefill: 0.125 });
});

test("predictions are those of the probed step, with the answer token and both texts", () => {
  const none = ints([0], []);
  const data = {
    ...{ step: none, error: none, mean: none, mean_tv: none, flips: none },
    ...{ recall: none, chance: none, proxy: null, true: null },
    row: ints([3], [0, 1, 1]),
    position: ints([3], [6, 6, 8]),
    tv: floats([3], [0, 0.5, 0.25]),
    top: ints([3, 2], [1, 1, 1, 2, 1, 1]),
    pieces: { 1: "a" },
  };
  assert.deepEqual(predictions(data, 5, 1), [
    { place: 1, tv: 0.5, flip: true, mine: "“a”", exact: "? (id 2)" },
    { place: 3, tv: 0.25, flip: false, mine: "“a”", exact: "“a”" },
  ]);
});

test("a mean leaves out what is not known, and is not known without values", () => {
  assert.equal(knownMean([1, NaN, 3]), 2);
  assert.equal(knownMean([NaN]), NaN);
});
