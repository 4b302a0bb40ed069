import assert from "node:assert/strict";
import test from "node:test";
import {
  canvasesApart,
  sharedTokens,
  tokensOf,
  turnCounts,
  turnedLayers,
  type LaneLens,
} from "../src/inspect/lens_lanes.ts";
import { bytes, frame, ints } from "./inspected.ts";

/** The lens of a lane: tokens of the run by layer and answer token; the exact pass has others. */
function laneOf(rows: number[][]): LaneLens {
  const [layers, count] = [rows.length, rows[0].length];
  const exact = new Array<number>(layers * count).fill(99);
  return {
    ids: {
      ids: ints([2, layers, count], [...rows.flat(), ...exact]),
      token_from: 0,
      token_to: count,
      pieces: {},
    },
    places: Int32Array.from({ length: count }, (_, i) => i),
  };
}

const A = laneOf([
  [1, 2, 3, 4, 5],
  [1, 2, 3, 4, 5],
  [1, 2, 3, 4, -1],
]);
const B = laneOf([
  [1, 9, 9, 4, 9],
  [1, 2, 9, 4, 9],
  [1, 9, 9, 4, 9],
]);

test("B differs from the first layer from which its token differs to the end", () => {
  assert.deepEqual([...turnedLayers({ a: A, b: B }, 3)], [-1, 2, 0, -1, -1]);
  assert.deepEqual([...turnedLayers({ a: B, b: A }, 3)], [-1, 2, 0, -1, -1]);
});

test("a lane never differs from itself", () => {
  assert.deepEqual(
    [...turnedLayers({ a: A, b: A }, 3)].filter((layer) => layer >= 0),
    [],
  );
});

test("a token that is not computed in a lane is not compared", () => {
  assert.deepEqual(tokensOf({ a: A, b: B }, 1, 4), [5, 9]);
  assert.equal(tokensOf({ a: A, b: B }, 2, 4), null);
});

test("answer tokens count by layer", () => {
  assert.deepEqual(turnCounts({ a: A, b: B }, 3), {
    compared: [5, 5, 4],
    differing: [3, 2, 2],
    turned: [1, 0, 1],
  });
});

test("only answer tokens of both lanes and of both lenses are compared", () => {
  const short = laneOf([[1, 2], [7, 2], [7, 2]]); // prettier-ignore
  const gap = { ids: short.ids, places: Int32Array.from([-1, 0, 1]) };
  assert.equal(sharedTokens({ a: A, b: short }), 2);
  assert.deepEqual([...turnedLayers({ a: A, b: short }, 3)], [1, -1]);
  assert.deepEqual([...turnedLayers({ a: A, b: gap }, 3)], [-1, 0, 0]);
});

test("canvases differ where a token is known in one lane only, or is another one", () => {
  const a = frame(); // step 1 commits answer token 1, step 3 token 3; token 2 was known before
  assert.equal(canvasesApart({ frame: a, step: 2 }, { frame: a, step: 2 }), 0);
  assert.equal(canvasesApart({ frame: a, step: 0 }, { frame: a, step: 1 }), 1);
  const other = { ...a, ids: ints([6], [1, 2, 8, 4, 8, 6]) };
  assert.equal(canvasesApart({ frame: a, step: 0 }, { frame: other, step: 0 }), 0);
  assert.equal(canvasesApart({ frame: a, step: 1 }, { frame: other, step: 1 }), 1);
  const bare = { ...a, before: bytes([6], [0, 0, 0, 0, 0, 0]) };
  assert.equal(canvasesApart({ frame: a, step: 0 }, { frame: bare, step: 0 }), 1);
});
