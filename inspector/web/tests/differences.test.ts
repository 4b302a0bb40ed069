import assert from "node:assert/strict";
import test from "node:test";
import {
  COSINE_LOOKS,
  cosinesApart,
  decadesApart,
  RATIO_LOOKS,
  ratioWords,
  sharedSteps,
} from "../src/inspect/differences.ts";
import { commonSteps } from "../src/inspect/step_pairs.ts";
import { raceOf, steps } from "./races.ts";

test("drifts are compared by their ratio, and those too small for the scale are equal", () => {
  assert.equal(decadesApart(0.01, 0.1), 1);
  assert.equal(decadesApart(0.1, 0.001), -2);
  assert.equal(decadesApart(1e-9, 1e-6), 0);
  assert.equal(decadesApart(0.1, NaN), null);
  assert.equal(decadesApart(NaN, 0.1), null);
});

test("a drift is one minus the cosine, so cosines differ the other way round", () => {
  assert.equal(cosinesApart(0.5, 0.25), 0.25);
  assert.equal(cosinesApart(NaN, 0.25), null);
});

test("orange is more drift in B and purple less, in both scales", () => {
  const orange = ([red, , blue]: readonly number[]): boolean => red > blue;
  assert.ok(orange(RATIO_LOOKS.colour(1)));
  assert.ok(!orange(RATIO_LOOKS.colour(-1)));
  assert.ok(orange(COSINE_LOOKS.colour(-0.4)));
  assert.ok(!orange(COSINE_LOOKS.colour(0.4)));
  assert.deepEqual(RATIO_LOOKS.colour(0), COSINE_LOOKS.colour(0));
});

test("the colours of the legend are those of the values beside them", () => {
  for (const { colour, legend } of [RATIO_LOOKS, COSINE_LOOKS]) {
    assert.ok(legend?.kind === "scale");
    const ends = legend === RATIO_LOOKS.legend ? [-2, 0, 2] : [-0.5, 0, 0.5];
    assert.deepEqual(ends.map(colour), [0, 0.5, 1].map(legend.colour));
  }
});

test("a ratio is told as how many times as large or small", () => {
  assert.equal(ratioWords(1), "10 times as large in B");
  assert.equal(ratioWords(-0.5), "3.2 times as small in B");
  assert.equal(ratioWords(0.01), "about equal");
  assert.equal(ratioWords(null), "not known in both lanes");
});

test("the steps that both lanes took are those of the whole run", () => {
  const { lanes } = raceOf(steps([0], [1], [2], [3]), steps([2], [3]));
  assert.deepEqual(sharedSteps(lanes.a, lanes.b), { first: 0, count: 2 });
  if (lanes.b.start) lanes.b.start.before = 2;
  assert.deepEqual(sharedSteps(lanes.a, lanes.b), { first: 2, count: 2 });
  if (lanes.b.start) lanes.b.start.before = 9;
  assert.equal(sharedSteps(lanes.a, lanes.b).count, 0);
});

test("compared steps are matched by their number in the whole run", () => {
  const a = { steps: [0, 2, 4, 6], before: 0 };
  assert.deepEqual(commonSteps(a, { steps: [0, 1, 2], before: 4 }), [
    { step: 4, a: 2, b: 0 },
    { step: 6, a: 3, b: 2 },
  ]);
});
