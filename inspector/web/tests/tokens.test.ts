import assert from "node:assert/strict";
import test from "node:test";
import { started } from "../src/race/lane.ts";
import { cellState, describe } from "../src/race/tokens.ts";
import { END, raceOf, steps } from "./races.ts";

const STOPS = new Set([END]);

function state(place: number, id: number | null, row = 0, frame = 2): string {
  const token = id === null ? null : { id, row, sure: 0.5, fixed: row < 0 };
  return cellState(token, place, frame, 2, STOPS); // the text ends at place 2
}

test("a mask after the end of the text is marked", () => {
  assert.deepEqual([state(1, null), state(3, null)], ["mask", "mask beyond"]);
});

test("a token is new at its step and then settled", () => {
  assert.deepEqual([state(0, 5, 1), state(0, 5, 0)], ["new", "settled"]);
  assert.equal(state(3, 5, 1), "new beyond");
});

test("the first end-of-text token is the end, those after it are padding", () => {
  assert.deepEqual([state(2, END), state(3, END, 1)], ["end", "pad new"]);
});

test("a given token is fixed", () => {
  assert.equal(state(0, 5, -1), "fixed");
});

test("a token is told with its id, confidence, step and time", () => {
  const lane = raceOf(steps([3]), []).lanes.a;
  assert.ok(started(lane));
  lane.pieces.set(13, "nuts");
  assert.equal(
    describe(lane, 3, 1),
    "A · token 4 · “nuts” (id 13) · confidence 0.500 · unmasked at step 1, 10 ms · block 2",
  );
  assert.equal(describe(lane, 3, 0), "A · token 4 · still masked · block 2");
  lane.start.record = "layers";
  assert.match(describe(lane, 3, 1), /unmasked at step 1 · block 2$/);
});
