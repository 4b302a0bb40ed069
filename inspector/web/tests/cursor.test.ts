import assert from "node:assert/strict";
import test from "node:test";
import { Cursor } from "../src/inspect/cursor.ts";
import type { Store } from "../src/race/store.ts";
import { laneStart, raceOf, steps } from "./races.ts";

/** A cursor, and how its listener was told. */
function cursor(): [Cursor, string[]] {
  const told: string[] = [];
  return [new Cursor((how) => told.push(how)), told];
}

test("a preview shows another spot and leaves the pinned one", () => {
  const [one, told] = cursor();
  one.hover({ step: 4 });
  assert.deepEqual([one.now.step, one.pinned.step, told], [4, 0, ["hover"]]);
  one.hover(null);
  assert.equal(one.now.step, 0);
});

test("a move tells the listener, a move to the same spot does not", () => {
  const [one, told] = cursor();
  one.move({ step: 4 });
  one.move({ step: 4 });
  assert.deepEqual([one.pinned.step, told], [4, ["move"]]);
});

test("a move to the pinned spot ends the preview of another one, which is drawn", () => {
  const [one, told] = cursor();
  one.hover({ step: 4 });
  one.move({ step: 0 });
  assert.deepEqual([one.now.step, told], [0, ["hover", "hover"]]);
});

test("parts that follow from the listener's state are set without telling it", () => {
  const [one, told] = cursor();
  one.settle({ layer: 2 });
  assert.deepEqual([one.now.layer, told], [2, []]);
});

test("a released token is neither chosen nor held", () => {
  const [one] = cursor();
  one.move({ position: 3 }, true);
  one.release();
  assert.deepEqual([one.now.position, one.held], [null, false]);
});

test("the token of a run that is no longer shown is unpinned without telling the listener", () => {
  const [one, told] = cursor();
  one.move({ step: 4, position: 3 }, true);
  one.forget();
  assert.deepEqual([one.now.step, one.now.position, one.held], [4, null, false]);
  assert.deepEqual(told, ["move"]);
});

const PROMPTS = [laneStart().prompt, [1, 2, 4]];

/** A cursor with a token pinned in lane B, and the next run, of which only lane A has started. */
function nextRun(prompt: number[]): [Cursor, Store] {
  const store = raceOf(steps([0]), steps([0]));
  const [one] = cursor();
  one.move({ lane: "b", position: 5 }, true);
  one.leave(store.lanes);
  const lanes = { a: { start: laneStart({ prompt }) } };
  store.take({ run: "next", state: "running", reset: true, lanes });
  one.check(store.lanes);
  return [one, store];
}

test("a token stays pinned in the next run of its prompt, of which lane A starts first", () => {
  for (const prompt of PROMPTS) {
    const [one] = nextRun(prompt);
    const same = prompt === PROMPTS[0];
    assert.deepEqual([one.pinned.position, one.held], [same ? 5 : null, same]);
  }
});

test("a token of lane B is unpinned once lane B starts with the prompt of another model", () => {
  for (const prompt of PROMPTS) {
    const [one, store] = nextRun(PROMPTS[0]);
    store.take({ run: "next", state: "running", lanes: { b: { start: laneStart({ prompt }) } } });
    one.check(store.lanes);
    assert.equal(one.pinned.position, prompt === PROMPTS[0] ? 5 : null);
    one.move({ position: 4 }, true);
    one.check(store.lanes);
    assert.equal(one.pinned.position, 4);
  }
});

test("in a shorter run a token beyond its end is unpinned, and the layer is one of its own", () => {
  const [one, told] = cursor();
  one.move({ layer: 7, position: 90 }, true);
  one.hover({ position: 95 });
  one.enter({ layers: 8, positions: 91 });
  assert.deepEqual([one.now.layer, one.now.position, one.held], [7, 90, true]);
  one.enter({ layers: 4, positions: 90 });
  assert.deepEqual([one.now.layer, one.now.position, one.held], [3, null, false]);
  assert.deepEqual(told, ["move", "hover"]);
});

test("the first run is entered in its middle layer", () => {
  for (const [layers, middle] of [
    [8, 4],
    [1, 0],
    [0, 0],
  ]) {
    const [one] = cursor();
    one.enter({ layers, positions: 4 });
    assert.equal(one.now.layer, middle);
  }
});
