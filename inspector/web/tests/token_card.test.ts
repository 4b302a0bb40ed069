import assert from "node:assert/strict";
import test from "node:test";
import { unrecordedWords } from "../src/inspect/row_reason.ts";
import type { Row } from "../src/race/lane.ts";
import { figureRows } from "../src/figures/table.ts";
import { plotTicks } from "../src/figures/scales.ts";
import { DRIFT_AXIS } from "../src/inspect/codes.ts";
import {
  blankWords,
  candidateWords,
  countWords,
  readToken,
  recomputedMarks,
} from "../src/inspect/views/card.ts";
import { bytes, floats, ints } from "./inspected.ts";
import { cardLeft } from "../src/race/token_card.ts";

test("a card is centred under its cell, within the box", () => {
  assert.equal(cardLeft(200, 40, 100, 500), 170);
  assert.equal(cardLeft(10, 40, 100, 500), 0);
  assert.equal(cardLeft(480, 20, 100, 500), 400);
  assert.equal(cardLeft(50, 20, 300, 280), 0);
});

test("a cell of a token that a step does not see is not called reused", () => {
  const sight = ints([3], [4, 4, 6]);
  assert.equal(blankWords({ sight }, 5), "reused, or not in sight");
  assert.equal(blankWords({ sight }, 3), "reused");
});

test("a token whose rows could not be read says why, and one that is read waits", () => {
  const missing = "It could not be read.";
  assert.deepEqual(readToken({ slice: () => ({ missing }) }, 3), { token: null, lack: missing });
  assert.deepEqual(readToken({ slice: () => undefined }, 3), { token: null, lack: null });
  const facts = { quantities: [] };
  const { token } = readToken({ slice: () => ({ arrays: {}, facts }) }, 3);
  assert.deepEqual(token, facts);
});

test("the card says of every step whether the token was a candidate", () => {
  const arrays = {
    position: ints([1], [7]),
    ids: ints([1, 2], [10, 11]),
    probs: floats([1, 2], [0.75, 0.0001]),
    chosen: bytes([1], [1]),
  };
  const found = { arrays, facts: { pieces: { 10: "a" } } };
  const words = "At step 4 it was a candidate: “a” 0.750, ? below 0.001.";
  assert.equal(candidateWords(found, 7, 4), words);
  assert.equal(candidateWords(found, 6, 4), "At step 4 it was not a candidate.");
  assert.equal(candidateWords(undefined, 7, 4), "Reading …");
  assert.equal(candidateWords({ missing: "It is gone." }, 7, 4), "It is gone.");
});

test("the marks of recomputed steps are no drifts in the CSV file", () => {
  const x = { name: "step", from: 0.5, to: 9.5 };
  const series = [recomputedMarks([2, 5], "#000")];
  const rows = figureRows({ title: "", x, y: DRIFT_AXIS, series });
  assert.deepEqual(rows, [["series", "step", "1 − cosine"]]);
});

test("the lower end of the axis of drifts stands for all smaller ones", () => {
  const texts = plotTicks(DRIFT_AXIS, 400, "y").map(({ text }) => text);
  assert.deepEqual(texts, ["≤ 0.0001", "0.001", "0.01", "0.1", "1"]);
});

test("a row is counted in the steps that attend to it", () => {
  const token = { quantities: [], sites: bytes([3, 1], [0, 0, 3]) };
  const frame = { steps: 3, sight: ints([3], [4, 4, 6]) };
  const words = (position: number): string => countWords(frame, token, { layer: 0, position });
  const counts = "K 1, V 1, attention 0, feed-forward 0";
  assert.equal(words(5), `in layer 1, of 1 step with it in sight: ${counts}`);
  assert.equal(words(3), `in layer 1, of 3 steps: ${counts}`);
});

const STEP: Row = { step: 4, block: 0, kind: 1, rows: 8, forwards: 1, left: 3, ms: 1, places: [] };

test("of a step without plans only a full one says what became of a row", () => {
  assert.equal(
    unrecordedWords(STEP, "step 5", 40),
    "In step 5, up to 8 of 40 rows were computed; which ones is not recorded.",
  );
  assert.equal(
    unrecordedWords({ ...STEP, kind: 0, rows: 40 }, "step 5", 40),
    "Recomputed: step 5 computed every row.",
  );
  assert.match(
    unrecordedWords({ ...STEP, kind: 0, rows: 32 }, "step 5", 40),
    /up to 32 of 40 rows/,
  );
});
