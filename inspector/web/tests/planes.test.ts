import assert from "node:assert/strict";
import { test } from "node:test";
import { at } from "../src/inspect/arrays.ts";
import { CellMap } from "../src/inspect/cell_map.ts";
import { rowAges } from "../src/inspect/replay_slices/plans.ts";
import { matrixOf, pairIndex } from "../src/inspect/replay_slices/similarity.ts";
import { singleRows } from "../src/inspect/plans.ts";
import { planeCodes } from "../src/inspect/planes.ts";
import { verdictCodes, verdictMap } from "../src/inspect/views/guider.ts";
import { kindCodes } from "../src/inspect/views/schedule.ts";
import { bytes, floats, frame, planOf } from "./inspected.ts";

const SHAPE = [3, 2, 2, 4];
const drift = bytes(
  SHAPE,
  Array.from({ length: 48 }, (_, i) => i),
);

test("a plane of positions has the cells of the array", () => {
  const steps = planeCodes(drift, { rows: 0, columns: 3, at: [0, 1, 1, 0] });
  const layers = planeCodes(drift, { rows: 1, columns: 3, at: [2, 0, 1, 0] });
  for (let x = 0; x < 4; x++) {
    for (let step = 0; step < 3; step++) {
      assert.equal(steps[step * 4 + x], at(drift, step, 1, 1, x));
    }
    for (let layer = 0; layer < 2; layer++) {
      assert.equal(layers[layer * 4 + x], at(drift, 2, layer, 1, x));
    }
  }
});

test("a plane may begin at a later column, and go along any axes", () => {
  assert.deepEqual(
    [...planeCodes(drift, { rows: 0, columns: 3, at: [0, 0, 0, 2] })],
    [2, 3, 18, 19, 34, 35],
  );
  assert.deepEqual(
    [...planeCodes(drift, { rows: 1, columns: 0, at: [0, 0, 0, 3] })],
    [3, 19, 35, 11, 27, 43],
  );
});

test("the comparison of all steps has the codes of the pairs, both ways", () => {
  const codes = bytes(
    [6, 2, 2, 2],
    Array.from({ length: 48 }, (_, i) => i),
  );
  const matrix = matrixOf(codes, 3, [1, 1, 0]);
  for (let y = 0; y < 3; y++) {
    for (let x = 0; x < 3; x++)
      assert.equal(matrix[3 * y + x], at(codes, pairIndex(y, x), 1, 1, 0));
  }
});

test("the ages of rows count from the step that recomputed them", () => {
  const { plan } = planOf((step, _, __, x) => step === 0 && x !== 5);
  const ages = rowAges(plan, 6, 0, 0);
  assert.deepEqual(ages.shape, [3, 6]);
  assert.deepEqual(
    [4, 5, 10, 11, 16, 17].map((i) => ages.values[i]),
    [0, 65535, 1, 65535, 2, 65535],
  );
});

/** Verdicts on four tokens in three steps, so many of which are joined on both axes. */
function verdicts(shape: number[], factor: number, codes: readonly number[]): CellMap {
  const axis = (to: number): object => ({ from: 0, to, factor });
  const facts = { rows: axis(3), columns: axis(4), by: factor > 1 ? "minimum" : "none" };
  return new CellMap({ arrays: { cells: bytes(shape, codes) }, facts });
}

test("verdicts tell tokens that were known before from those that were not drafted", () => {
  // Position 2 is committed in step 1, 3 was known before, 4 is committed in step 3, 5 never.
  const map = verdicts([3, 4], 1, [0, 255, 255, 255, 255, 255, 1, 255, 255, 255, 255, 255]);
  const found = verdictCodes(map, frame(), 4);
  const known = 254;
  assert.deepEqual([...found], [0, known, 255, 255, known, known, 1, 255, known, known, 255, 255]);
  assert.equal(verdictCodes(map, frame(), 2).length, 6);
});

test("joined verdicts were known before only if all of their tokens were", () => {
  // Steps 1 and 2 are joined, and each two of the four tokens. Both of the first two are known
  // before steps 2 and 3, and the others never.
  const found = verdictCodes(verdicts([2, 2], 2, [255, 255, 255, 255]), frame(), 4);
  assert.deepEqual([...found.subarray(0, 8)], new Array<number>(8).fill(255));
  assert.deepEqual([...found.subarray(8)], [254, 254, 255, 255]);
});

test("kinds are three rows as planned and three as done", () => {
  const none = floats([0], []);
  const data = {
    planned: bytes([2, 3], [0, 1, 2, 3, 2, 1]),
    done: bytes([2, 3], [1, 1, 1, 2, 2, 2]),
    differs: none,
    running: none,
  };
  assert.deepEqual([...kindCodes(data, 2)], [0, 3, 1, 2, 2, 1, 1, 2, 1, 2, 1, 2]);
  const unplanned = kindCodes({ ...data, planned: bytes([0, 3], []) }, 2);
  assert.deepEqual([...unplanned], [4, 4, 4, 4, 4, 4, 1, 2, 1, 2, 1, 2]);
});

test("the verdicts of a map are found out once, with those that occur", () => {
  const map = verdicts([3, 4], 1, [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2]);
  const { used, codes, present } = verdictMap(map, ["accepted", "mismatch"], frame());
  assert.deepEqual([used, codes.length], [4, 12]);
  assert.deepEqual([...present].sort(), [0, 1, 2]);
});

test("drifts of joined rows are not those of single rows", () => {
  const cells = bytes([2, 3], [1, 2, 3, 4, 5, 6]);
  assert.equal(singleRows({ cells, by: "none" }), cells);
  assert.equal(singleRows({ cells, by: "maximum" }), null);
});
