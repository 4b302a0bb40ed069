import assert from "node:assert/strict";
import test from "node:test";
import { started } from "../src/race/lane.ts";
import { blocksOf, cellState, describe, Grid, placeAcross } from "../src/race/tokens.ts";
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

test("an arrow key moves to the line below or above, where each block begins a line", () => {
  const moved = (block: number, length: number, by: 1 | -1, places: number[]): number[] =>
    places.map((place) => placeAcross(blocksOf({ length, block }), place, 8, by));
  assert.deepEqual(moved(4, 12, 1, [1, 5, 9]), [5, 9, 9]);
  assert.deepEqual(moved(4, 12, -1, [1, 5, 9]), [1, 1, 5]);
  assert.deepEqual(moved(10, 20, 1, [1, 7, 9]), [9, 9, 11]);
  assert.deepEqual(moved(10, 20, -1, [10, 14]), [8, 9]);
});

test("the first block leaves out the places that the prompt has of it", () => {
  assert.deepEqual(blocksOf({ length: 5, block: 4, shared: 3 }), [
    { from: 0, places: 1 },
    { from: 1, places: 4 },
  ]);
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
    "A · token 4 · “nuts” (id 13) · confidence 0.500 · committed at step 1, 10 ms · block 2",
  );
  assert.equal(describe(lane, 3, 0), "A · token 4 · still masked · block 2");
  lane.start.record = "layers";
  assert.match(describe(lane, 3, 1), /committed at step 1 · block 2$/);
});

test("once the keyboard has left the grid, it points at no token", () => {
  const box = new EventTarget();
  const told: unknown[] = [];
  new Grid(box as unknown as HTMLElement, {
    point: (place, how) => told.push([place, how]),
    pin: () => undefined,
    keys: (here) => told.push(here),
  });
  box.dispatchEvent(new Event("blur"));
  assert.deepEqual(told, [false, [null, "keys"]]);
});
