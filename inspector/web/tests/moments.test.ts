import assert from "node:assert/strict";
import test from "node:test";
import { frameAt, framesAt, momentOf, momentsOf, moved, type Moment } from "../src/race/moments.ts";
import type { Store } from "../src/race/store.ts";
import { alignWords } from "../src/race/transport.ts";
import { raceOf, steps } from "./races.ts";

// Known tokens: lane A 0 1 1 1 2, lane B 0 0 1 2.
const A = [0, 1, 1, 1, 2];
const B = [0, 0, 1, 2];

function emptySteps(): Store {
  return raceOf(steps([0], [], [], [1]), steps([], [0], [1]));
}

/** The frames of both lanes that the right arrow reaches from the start. */
function walk(store: Store): number[][] {
  const moments = store.moments("tokens");
  let moment: Moment = { value: 0, later: 0 };
  const seen: number[][] = [];
  for (let i = 0; i < 10; i++) {
    const { a, b } = store.frames("tokens", moment);
    if (String(seen.at(-1)) === String([a, b])) break;
    seen.push([a, b]);
    moment = moved(moments, moment, 1);
  }
  return seen;
}

test("every step can be reached when aligned by tokens, also those that commit nothing", () => {
  assert.deepEqual(walk(emptySteps()), [
    [0, 0],
    [0, 1],
    [1, 2],
    [2, 2],
    [3, 2],
    [4, 3],
  ]);
});

test("every frame of a lane can be shown when aligned by tokens", () => {
  for (const values of [A, B]) {
    const shown = values.map((_, frame) => frameAt(values, momentOf(values, frame)));
    assert.deepEqual(shown, [...values.keys()]);
  }
});

test("where a lane shows the last frame of a value, the other one does so too", () => {
  assert.equal(frameAt(A, momentOf([0, 1, 2], 1)), 3);
});

test("going back visits the same moments", () => {
  const moments = momentsOf([A, B]);
  const there = moments.map((_, i) => moved(moments, moments[0], i));
  const back = moments.map((_, i) => moved(moments, moments[moments.length - 1], -i));
  assert.deepEqual(there, [...back].reverse());
});

test("a value that was dragged to shows its last frame, and the arrows go on from there", () => {
  const dragged = { value: 1, later: Infinity };
  assert.equal(frameAt(A, dragged), 3);
  assert.deepEqual(moved(momentsOf([A, B]), dragged, 1), { value: 2, later: 0 });
  assert.deepEqual(moved(momentsOf([A, B]), dragged, -1), { value: 1, later: 1 });
});

test("between two values, back is the one before and forth the one after", () => {
  const moments = momentsOf([[0, 10, 20]]);
  const between = { value: 14, later: Infinity };
  assert.equal(moved(moments, between, -1).value, 10);
  assert.equal(moved(moments, between, 1).value, 20);
});

test("ten moves stop at the ends", () => {
  const moments = momentsOf([[0, 10, 20]]);
  assert.equal(moved(moments, { value: 10, later: 0 }, 10).value, 20);
  assert.equal(moved(moments, { value: 10, later: 0 }, -10).value, 0);
});

test("without steps there is only the start", () => {
  assert.deepEqual(moved(momentsOf([]), { value: 0, later: 0 }, 1), { value: 0, later: 0 });
});

test("the frames at a value are those of the lane with the most", () => {
  assert.deepEqual([framesAt([A, B], 0), framesAt([A, B], 1), framesAt([A, B], 1.5)], [2, 3, 1]);
});

test("a value is told in the unit of its axis", () => {
  assert.equal(alignWords("time", 1500), "1.50 s");
  assert.equal(alignWords("step", 1), "1 step");
  assert.equal(alignWords("tokens", 11.7), "11 tokens");
});
