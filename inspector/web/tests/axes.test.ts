import assert from "node:assert/strict";
import test from "node:test";
import {
  alike,
  laneSeries,
  nameOnAxis,
  niceAbove,
  percentEnd,
  shortened,
  stepAt,
} from "../src/inspect/axes.ts";

test("the step next to a place is within the run", () => {
  assert.deepEqual(
    [0.5, 1.4, 1.6, 99].map((x) => stepAt(x, 8)),
    [0, 0, 1, 7],
  );
});

test("a nice number is the smallest one that is not below the value", () => {
  const found = [0.7, 1, 1.2, 2, 2.1, 5.5, 26, 0.03].map(niceAbove);
  assert.deepEqual(found, [1, 1, 2, 2, 5, 10, 50, 0.05]);
});

test("the axis of shares ends above the highest bar", () => {
  assert.equal(percentEnd([0.011, 0.013, null], []), 2);
});

test("a line that leaves the bars visible has its place on the axis", () => {
  assert.equal(percentEnd([0.04], [0.25, 0.3]), 50);
});

test("a line that would hide the bars is above the axis", () => {
  assert.equal(percentEnd([0.013], [1, 1]), 2);
});

test("without bars, the lines set the axis", () => {
  assert.equal(percentEnd([null, 0], [0.25]), 50);
});

test("without any share, the axis ends at 100 %", () => {
  assert.equal(percentEnd([null], []), 100);
});

test("large bars leave room for a line of 100 %", () => {
  assert.equal(percentEnd([0.7], [1]), 100);
});

test("neighbouring ends become one; others stay apart", () => {
  assert.deepEqual(alike(2, 5), [5, 5]);
  assert.deepEqual(alike(10, 2), [10, 2]);
});

test("the name of a line says that some of it is above the axis", () => {
  assert.equal(
    nameOnAxis("recomputed", [1, 0.01], 2),
    "recomputed (above the axis where over 2 %)",
  );
  assert.equal(nameOnAxis("recomputed", [0.02, 0.01], 2), "recomputed");
});

test("a lane's line has its colour, and lane A's is dashed", () => {
  const { name, colour, xs, dash } = laneSeries("a", [5, 6], { a: "red", b: "blue" });
  assert.deepEqual([name, colour, xs, dash], ["Lane A", "red", [1, 2], [6, 3]]);
});

test("an axis that ends with the shorter answer has no line of a block beyond it", () => {
  const marks = [{ at: 16 }, { at: 32 }, { at: 48 }];
  const axis = { name: "answer token", count: 64, marks };
  assert.deepEqual(shortened(axis, 32), { ...axis, count: 32, marks: [{ at: 16 }] });
});
