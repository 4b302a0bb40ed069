import assert from "node:assert/strict";
import test from "node:test";
import { stack, stepCosts, type TimeData } from "../src/inspect/step_costs.ts";
import { floats } from "./inspected.ts";

const PARTS = ["projections", "attention", "ffn", "head", "selection", "guider"];

function timed(guider: number[]): TimeData {
  return {
    forward_ms: floats([2], [8, 4]),
    decide_ms: floats([2], [2, 3]),
    gflops: floats([2, 6], [1, 2, 3, 4, 5, 0, 6, 7, 8, 9, 10, 0]),
    parts: PARTS,
    guider_ms: floats([guider.length / 2, 2], guider),
    needed: floats([0], []),
  };
}

test("each part stands on the parts before it", () => {
  const { stacked, total, running } = stack(
    [
      { name: "one", colour: "red", ys: [1, 2] },
      { name: "two", colour: "blue", ys: [3, 4] },
    ],
    2,
  );
  assert.deepEqual(
    stacked.map(({ base }) => base),
    [
      [0, 0],
      [1, 2],
    ],
  );
  assert.deepEqual(
    [total, running],
    [
      [4, 6],
      [4, 10],
    ],
  );
});

test("the time of a step is that in the network and of deciding", () => {
  const { stacked, total } = stepCosts(timed([]), "ms");
  assert.deepEqual(
    stacked.map(({ name, ys }) => [name, ys]),
    [
      ["network", [8, 4]],
      ["deciding", [2, 3]],
    ],
  );
  assert.deepEqual(total, [10, 7]);
});

test("a guider's time is a part of deciding, and its prefill a part of it", () => {
  const { stacked, total } = stepCosts(timed([1.5, 1, 2, 0]), "ms");
  assert.deepEqual(
    stacked.map(({ name, ys }) => [name, ys]),
    [
      ["network", [8, 4]],
      ["deciding", [0.5, 1]],
      ["guider", [0.5, 2]],
      ["guider's prefill", [1, 0]],
    ],
  );
  assert.deepEqual(total, [10, 7]);
});

test("the guider's FLOPs are listed only if there is one", () => {
  const names = (data: TimeData): string[] => stepCosts(data, "GFLOPs").stacked.map((p) => p.name);
  assert.ok(!names(timed([])).includes("guider"));
  assert.ok(names(timed([0, 0, 0, 0])).includes("guider"));
});

test("the FLOPs of a part are its column", () => {
  const { stacked, running } = stepCosts(timed([]), "GFLOPs");
  assert.deepEqual(stacked.map(({ ys }) => ys)[2], [3, 8]);
  assert.deepEqual(running, [15, 55]);
});
