import assert from "node:assert/strict";
import test from "node:test";
import { DRIFT, NO_DATA } from "../src/inspect/codes.ts";
import {
  codeUpTo,
  CountTable,
  countTable,
  highest,
  rowsDone,
  shareAbove,
} from "../src/inspect/tally.ts";
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

test("a cell counts the evaluated rows and those above the code, not at it", () => {
  const table = new CountTable(DRIFTS, 0, 0);
  assert.deepEqual(table.at(1, 0, 20), { seen: 3, above: 1 });
});

test("rows before the first position do not count", () => {
  const table = new CountTable(DRIFTS, 0, 1);
  assert.deepEqual(table.at(1, 0, 9), { seen: 2, above: 2 });
});

test("the other quantity has its own counts", () => {
  const table = new CountTable(DRIFTS, 1, 0);
  assert.deepEqual(table.at(0, 0, 0), { seen: 4, above: 4 });
});

test("a layer sums over the steps, a step over the layers", () => {
  const table = new CountTable(DRIFTS, 0, 0);
  assert.deepEqual(table.ofLayer(1, 20), { seen: 4, above: 2 });
  assert.deepEqual(table.ofStep(1, 20), { seen: 7, above: 3 });
  assert.deepEqual(table.ofStep(0, 20), { seen: 0, above: 0 });
  assert.deepEqual(table.ofAll(20), { seen: 7, above: 3 });
});

test("the share of a cell without evaluated rows is unknown", () => {
  const table = new CountTable(DRIFTS, 0, 0);
  assert.equal(shareAbove(table.at(0, 1, 0)), null);
  assert.equal(shareAbove(table.at(1, 0, 20)), 1 / 3);
});

test("the layer that drifts most has the largest share, not the largest count", () => {
  // Layer 1: two of four rows above; layer 2: one of one.
  const few = bytes([1, 2, 1, 4], [50, 50, 1, 1, 60, __, __, __]);
  assert.deepEqual(new CountTable(few, 0, 0).mostDrifted(10), { layer: 1, share: 1 });
});

test("no layer drifts most if no row is above the threshold", () => {
  assert.equal(new CountTable(DRIFTS, 0, 0).mostDrifted(90), null);
});

test("a table is made once for a choice, and again for another one", () => {
  const first = countTable(DRIFTS, 0, 0);
  assert.equal(countTable(DRIFTS, 0, 0), first);
  assert.notEqual(countTable(DRIFTS, 0, 1), first);
});

test("the highest rows come first; equal ones by position", () => {
  const found = highest(DRIFTS, [1, 1, 0], 1, 2);
  assert.deepEqual(found, [
    { code: 90, position: 3 },
    { code: 20, position: 1 },
  ]);
});

test("the code of a threshold is the last one that is not above it", () => {
  const code = codeUpTo(0.05);
  assert.ok(DRIFT[code] <= 0.05 && DRIFT[code + 1] > 0.05);
});

test("recomputed rows are the bits of the positions in a range", () => {
  // One step, one layer, two sites, ten positions; the first position is the highest bit.
  const plan = bytes([1, 1, 2, 2], [0xff, 0xc0, 0b10100001, 0b01000000]);
  assert.equal(rowsDone(plan, 0, 10, [0, 0, 1]), 4);
  assert.equal(rowsDone(plan, 1, 9, [0, 0, 1]), 2);
});
