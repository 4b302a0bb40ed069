import assert from "node:assert/strict";
import test from "node:test";
import { DRIFT, NO_DATA } from "../src/inspect/codes.ts";
import { at, type NdArray } from "../src/inspect/arrays.ts";
import { countAbove } from "../src/inspect/replay_slices/drifts.ts";
import { codeUpTo, CountTable, highest, shareAbove } from "../src/inspect/tally.ts";
import { bytes } from "./inspected.ts";

const __ = NO_DATA;
// Two steps, two layers, two quantities, four positions.
const DRIFTS = bytes(
  [2, 2, 2, 4],
  [
    [__, __, __, __],
    [1, 1, 1, 1],
    [__, __, __, __],
    [1, 1, 1, 1],
    [10, 20, 30, __],
    [1, 1, 1, 1],
    [40, 20, 20, 90],
    [1, 1, 1, 1],
  ].flat(),
);

function tableOf(drift: NdArray, quantity: number, from: number, code: number): CountTable {
  return new CountTable(
    countAbove(drift, quantity, from, -1),
    countAbove(drift, quantity, from, code),
  );
}

test("a cell counts the evaluated rows and those above the code, not at it", () => {
  assert.deepEqual(tableOf(DRIFTS, 0, 0, 20).at(1, 0), { seen: 3, above: 1 });
});

test("rows before the first position do not count", () => {
  assert.deepEqual(tableOf(DRIFTS, 0, 1, 9).at(1, 0), { seen: 2, above: 2 });
});

test("the other quantity has its own counts", () => {
  assert.deepEqual(tableOf(DRIFTS, 1, 0, 0).at(0, 0), { seen: 4, above: 4 });
});

test("a layer sums over the steps, a step over the layers", () => {
  const table = tableOf(DRIFTS, 0, 0, 20);
  assert.deepEqual(table.byLayer[1], { seen: 4, above: 2 });
  assert.deepEqual(table.byStep[1], { seen: 7, above: 3 });
  assert.deepEqual(table.byStep[0], { seen: 0, above: 0 });
  assert.deepEqual(table.ofAll(), { seen: 7, above: 3 });
});

test("the share of a cell without evaluated rows is unknown", () => {
  const table = tableOf(DRIFTS, 0, 0, 20);
  assert.equal(shareAbove(table.at(0, 1)), null);
  assert.equal(shareAbove(table.at(1, 0)), 1 / 3);
});

test("the layer that drifts most has the largest share, not the largest count", () => {
  // Layer 1: two of four rows above; layer 2: one of one.
  const few = bytes([1, 2, 1, 4], [50, 50, 1, 1, 60, __, __, __]);
  assert.deepEqual(tableOf(few, 0, 0, 10).mostDrifted(), { layer: 1, share: 1 });
});

test("no layer drifts most if no row is above the threshold", () => {
  assert.equal(tableOf(DRIFTS, 0, 0, 90).mostDrifted(), null);
});

test("the highest rows come first; equal ones by position", () => {
  const found = highest((x) => at(DRIFTS, 1, 1, 0, x), [1, 4], 2);
  assert.deepEqual(found, [
    { code: 90, position: 3 },
    { code: 20, position: 1 },
  ]);
});

test("the code of a threshold is the last one that is not above it", () => {
  const code = codeUpTo(0.05);
  assert.ok(DRIFT[code] <= 0.05 && DRIFT[code + 1] > 0.05);
});
