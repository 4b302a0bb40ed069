import assert from "node:assert/strict";
import { test } from "node:test";
import type { NdArray } from "../src/inspect/arrays.ts";
import {
  certaintyWords,
  chanceWords,
  drawnWords,
  knobLabel,
  scoreWords,
  settingsFor,
  sliderRange,
  whatIfRows,
  whatIfSentence,
  withRule,
  withSetting,
  type WhatIfData,
  type WhatIfKnob,
} from "../src/inspect/what_if.ts";

const ints = (...values: number[]): NdArray => ({
  shape: [values.length],
  values: Int32Array.from(values),
});
const reals = (...values: number[]): NdArray => ({
  shape: [values.length],
  values: Float32Array.from(values),
});

const KNOB: WhatIfKnob = {
  name: "threshold",
  label: "Threshold",
  help: "",
  type: "float",
  lo: 0,
  hi: 2,
  choices: [],
  default: 0.9,
  value: 0.9,
  run: 0.8,
};

/** Position 3 in both, 4 added, 5 left out, 6 with another token, 7 in neither. */
function data(changes: Partial<WhatIfData> = {}): WhatIfData {
  return {
    step: 2,
    positions: ints(3, 4, 5, 6, 7),
    ids: ints(10, 11, 12, 13, 14),
    confidence: reals(0.9, 0.8, 0.7, 0.6, 0.5),
    score: reals(0.9, 0.8, 0.7, 0.95, 0.99),
    chance: { shape: [5, 2], values: new Float32Array(10).fill(1) },
    would: ints(1, 1, 0, 1, 0),
    did: ints(1, 0, 1, 1, 0),
    did_ids: ints(10, -1, 12, 99, -1),
    own: false,
    possible: true,
    unknown: [],
    notes: [],
    refusal: "",
    query: "",
    rule: "threshold",
    run_rule: "threshold",
    rules: [],
    knobs: [KNOB],
    temperature: { ...KNOB, name: "temperature", default: 0, value: 0, run: 0 },
    pieces: {},
    ...changes,
  };
}

test("tokens that either result commits come first, by score, and say how they differ", () => {
  const rows = whatIfRows(data()).map(({ position, difference }) => [position, difference]);
  const expected = [
    [6, "other"],
    [3, "same"],
    [4, "added"],
    [5, "dropped"],
    [7, "neither"],
  ];
  assert.deepEqual(rows, expected);
});

test("scores that are no numbers come last, in the order of their positions", () => {
  const score = reals(NaN, 0.1, NaN, 0.2, 0.3);
  const rows = whatIfRows(data({ score, would: ints(1, 1, 1, 1, 1) }));
  assert.deepEqual(
    rows.map(({ position }) => position),
    [7, 6, 4, 3, 5],
  );
});

test("the sentence counts what is added, left out and another token", () => {
  const found = data();
  assert.equal(
    whatIfSentence(whatIfRows(found), found, 3),
    "Step 3 committed 3 tokens. With these settings it would have committed 3 tokens: 1 added, 1 left out, 1 with another token.",
  );
});

test("with the run's settings the sentence says that both are the same", () => {
  const same = data({ own: true, would: ints(1, 0, 1, 1, 0), ids: ints(10, 11, 12, 99, 14) });
  const words = whatIfSentence(whatIfRows(same), same, 3);
  assert.match(words, /^These are the run's own settings: .* exactly the 3 tokens/);
  const wrong = data({ own: true });
  assert.match(whatIfSentence(whatIfRows(wrong), wrong, 3), /1 added/);
});

test("a refusal takes the place of a result, and nothing is said to be certain", () => {
  const refused = data({ refusal: "No run has these settings.", would: ints(0, 0, 0, 0, 0) });
  const words = whatIfSentence(whatIfRows(refused), refused, 3);
  assert.equal(words, "Step 3 committed 3 tokens. No run has these settings.");
  assert.equal(certaintyWords(refused), "");
});

test("what is not known is said in place of exactness", () => {
  assert.match(certaintyWords(data()), /^Exact/);
  assert.equal(certaintyWords(data({ unknown: ["A draw."] })), "Not certain. A draw.");
});

test("a chance is a range, one number if both bounds read the same, and empty if certain", () => {
  assert.equal(chanceWords([0.91, 0.953]), "91 % to 95 %");
  assert.equal(chanceWords([0.951, 0.952]), "95 %");
  assert.equal(chanceWords([1, 1]), "");
  assert.equal(chanceWords([NaN, NaN]), "");
});

test("a token that is not drawn is not said to be certain", () => {
  const chances = [
    [0.951, 0.952],
    [1, 1],
    [NaN, NaN],
  ] as const;
  assert.deepEqual(chances.map(drawnWords), ["95 %", "certain", "–"]);
});

test("a score that ranks last has no number", () => {
  assert.equal(scoreWords(-3.4e38), "last");
  assert.equal(scoreWords(-Infinity), "last");
  assert.equal(scoreWords(-0.25), "-0.2500");
  assert.deepEqual([-0, -0.00001, 0].map(scoreWords), ["0.0000", "0.0000", "0.0000"]);
  assert.equal(scoreWords(NaN), "–");
});

test("a knob has the label of the settings form", () => {
  assert.equal(knobLabel({ label: "multi chunk" }), "Multi chunk");
  assert.equal(knobLabel({ label: "Speculation block" }), "Speculation block");
});

test("a lane gets the settings of its own rule, and both lanes those of a chosen one", () => {
  const chosen = "temperature=0.7&threshold.threshold=0.4";
  assert.equal(settingsFor(chosen, "threshold"), chosen);
  assert.equal(settingsFor(chosen, "quota"), "temperature=0.7");
  const other = "factor.factor=2&unmasker=factor";
  assert.equal(settingsFor(other, "quota"), other);
  assert.equal(settingsFor("", "quota"), "");
});

test("settings hold only what differs from the run, in one order and without commas", () => {
  const once = withSetting("", KNOB, 0.5, "threshold");
  assert.equal(once, "threshold.threshold=0.5");
  const heat = { name: "temperature", run: 0, default: 0 };
  const twice = withSetting(once, heat, 0.7, "");
  assert.equal(twice, "temperature=0.7&threshold.threshold=0.5");
  assert.equal(withSetting(twice, KNOB, 0.8, "threshold"), "temperature=0.7");
  assert.equal(
    withSetting("", { name: "alg", run: null, default: "x" }, "a,b", "r"),
    "r.alg=a%2Cb",
  );
});

test("another rule keeps the temperature and forgets the knobs of the one before", () => {
  const before = "temperature=0.7&threshold.threshold=0.5";
  assert.equal(withRule(before, "factor", "threshold"), "temperature=0.7&unmasker=factor");
  assert.equal(withRule("unmasker=factor&factor.factor=2", "threshold", "threshold"), "");
});

test("a slider stops where values make no more difference, but holds the run's value", () => {
  assert.deepEqual(sliderRange(KNOB), { min: 0, max: 2, step: 0.01 });
  assert.equal(sliderRange({ ...KNOB, hi: 100, default: 1 }).max, 4);
  assert.equal(sliderRange({ ...KNOB, hi: 100, default: 1, run: 30 }).max, 30);
  assert.deepEqual(sliderRange({ ...KNOB, type: "int", default: 0, value: 0, hi: 1000 }), {
    min: 0,
    max: 20,
    step: 1,
  });
});
