import assert from "node:assert/strict";
import test from "node:test";
import { knownMean, recallText } from "../src/inspect/views/error.ts";
import { candidateList, candidateRow } from "../src/inspect/views/candidates.ts";
import {
  probedPredictions,
  predictions,
  predictionWords,
  type ProbedPredictions,
} from "../src/inspect/probes.ts";
import { Panel } from "../src/inspect/panel.ts";
import type { Missing } from "../src/inspect/view.ts";
import { largestWords } from "../src/inspect/views/counts.ts";
import { VIEWS } from "../src/inspect/views/index.ts";
import { timeShares, timeWords, usedTokens } from "../src/inspect/views/guider.ts";
import { lackWords } from "../src/inspect/views/time.ts";
import type { Documents } from "../src/inspect/replay_slices/documents.ts";
import { bytes, cutPart, floats, frame, ints } from "./inspected.ts";

test("a candidate's tokens come with their texts, and the committed one", () => {
  const data = {
    position: ints([1], [7]),
    ids: ints([1, 2], [10, 11]),
    probs: floats([1, 2], [0.75, 0.25]),
    chosen: bytes([1], [1]),
    pieces: { 10: "a" },
  };
  assert.equal(candidateRow(data, 7), 0);
  assert.equal(candidateRow(data, 6), -1);
  assert.deepEqual(candidateList(data, 0), [
    { id: 10, piece: "a", prob: 0.75, chosen: false },
    { id: 11, piece: undefined, prob: 0.25, chosen: true },
  ]);
});

test("the map of verdicts ends after the last token that was drafted", () => {
  const names = ["accepted", "filled"] as const;
  const used = (...codes: number[]): number =>
    usedTokens((_, place) => codes[place], names, 1, codes.length);
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

test("a run's times are not said to be missing while they are read", () => {
  assert.equal(timeWords(null), "reading …");
  assert.equal(timeWords({ missing: "The server did not answer." }), "The server did not answer.");
});

test("the largest drifts of a step are not said to be read for ever", () => {
  const words = (found?: Missing): string => {
    const own = { frame: { value: frame() }, slice: { value: () => found } };
    const panel = Object.create(Panel.prototype, own) as Panel;
    return largestWords(panel, { quantity: "v", from: 0 }, 1, 0);
  };
  assert.equal(words(), "; largest: reading …");
  assert.equal(words({ missing: "It is gone." }), "; largest: It is gone.");
});

test("what one lane's times lack is not said of both", () => {
  const lacks = (a: string, b: string): string =>
    lackWords([
      { name: "a", why: a },
      { name: "b", why: b },
    ]);
  assert.deepEqual([lacks("", ""), lacks("Recorded.", "Recorded.")], ["", "Recorded."]);
  assert.equal(lacks("", "Recorded."), "Lane B: Recorded.");
  assert.equal(lacks("Foreign.", "Recorded."), "Lane A: Foreign. Lane B: Recorded.");
});

test("a total variation reads as 0 or 1 only if it is", () => {
  const found = [0, 0.0004, 0.25, 0.9996, 1].map((tv) => {
    const words = predictionWords({ place: 0, tv, flip: false, mine: "“a”", exact: "“a”" });
    return /variation (.*)\)$/.exec(words)?.[1];
  });
  assert.deepEqual(found, ["0.000", "below 0.001", "0.250", "above 0.999", "1.000"]);
});

test("predictions are those of the probed step, with the answer token and both texts", () => {
  const none = ints([0], []);
  const error: Documents["error"] = {
    ...{ step: none, error: none, mean: none, recall: none, chance: none, proxy: null, true: null },
    row: ints([3], [0, 1, 1]),
    position: ints([3], [6, 6, 8]),
    tv: floats([3], [0, 0.5, 0.25]),
    top: ints([3, 2], [1, 1, 1, 2, 1, 1]),
    pieces: { 1: "a" },
  };
  const data = cutPart<ProbedPredictions>({ error }, probedPredictions(1));
  assert.deepEqual(predictions(data, 5), [
    { place: 1, tv: 0.5, flip: true, mine: "“a”", exact: "? (id 2)" },
    { place: 3, tv: 0.25, flip: false, mine: "“a”", exact: "“a”" },
  ]);
});

test("a mean leaves out what is not known, and is not known without values", () => {
  assert.equal(knownMean([1, NaN, 3]), 2);
  assert.equal(knownMean([NaN]), NaN);
});

test("what a view says of branches is apart, so that pages without branches can hide it", () => {
  const views = Object.values(VIEWS);
  for (const { about } of views) assert.doesNotMatch(about, /to branch|One click continues/);
  const told = views.filter(({ branching }) => branching).map(({ title }) => title);
  assert.deepEqual(told.sort(), ["Candidates", "What if"]);
});

test("a recall reads as 0 or 1 only if it is", () => {
  const texts = [0, 0.003, 0.5, 0.997, 1, NaN].map(recallText);
  assert.deepEqual(texts, ["0.00", "below 0.01", "0.50", "above 0.99", "1.00", "no data"]);
});
