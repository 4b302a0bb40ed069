import assert from "node:assert/strict";
import test from "node:test";

import { gridsOf, imagePlace, isDecoded, patchAfter, stripTitle } from "../src/race/images.ts";
import type { ImageMessage } from "../src/race/messages.ts";
import { promptParts } from "../src/race/prompt_and_answer.ts";

const WIDE: ImageMessage = {
  name: "500x300-" + "0".repeat(32),
  width: 500,
  height: 300,
  mode: "anyres",
  first: 10,
  rows: 729 + 27 * 47,
  crops: 3,
  grid: [2, 1],
  map: [46, 27],
};
const PADDED: ImageMessage = { ...WIDE, mode: "pad", first: 4, rows: 730, crops: 1, map: [27, 27] };

test("an image has the whole image first, then the map with its newlines", () => {
  const grids = gridsOf(WIDE);
  assert.deepEqual(
    grids.map(({ first, columns, rows }) => [first, columns, rows]),
    [
      [0, 27, 27],
      [729, 47, 27],
    ],
  );
  const total = grids.reduce((sum, { columns, rows }) => sum + columns * rows, 0);
  assert.equal(total, WIDE.rows);
});

test("a position is named by its image, grid, row and column", () => {
  const at = (position: number): string | null => imagePlace([WIDE], position);
  assert.equal(at(9), null);
  assert.equal(at(10), "image 1, whole image, row 1, column 1");
  assert.equal(at(10 + 28), "image 1, whole image, row 2, column 2");
  assert.equal(at(10 + 729), "image 1, tiles, row 1, column 1");
  assert.equal(at(10 + 729 + 46), "image 1, tiles, row 1, newline");
  assert.equal(at(10 + WIDE.rows - 1), "image 1, tiles, row 27, newline");
  assert.equal(at(10 + WIDE.rows), null);
});

test("the last row of a padded image is its newline", () => {
  assert.equal(imagePlace([PADDED], 4 + 729), "image 1, newline");
  assert.equal(imagePlace([PADDED], 4 + 728), "image 1, whole image, row 27, column 27");
  assert.equal(gridsOf(PADDED).length, 1);
});

test("the arrow keys stay in the column, and within the grid", () => {
  const [whole] = gridsOf(WIDE);
  const after = (key: string, at: number | null): number | null => patchAfter(key, at, whole);
  assert.equal(after("ArrowUp", 5), 5);
  assert.equal(after("ArrowUp", 27 + 5), 5);
  assert.equal(after("ArrowDown", 26 * 27 + 5), 26 * 27 + 5);
  assert.equal(after("ArrowRight", 26), 27);
  assert.equal(after("ArrowRight", 728), 728);
  assert.equal(after("ArrowLeft", 0), 0);
  assert.equal(after("ArrowDown", null), 0);
  assert.equal(after("Enter", 5), null);
});

test("the prompt shows a line in place of an image's rows", () => {
  const prompt = [1, 2, 3, 4, ...Array<number>(730).fill(9), 5, 6];
  const lane = { start: { prompt, images: [PADDED] } } as unknown as Parameters<
    typeof promptParts
  >[0];
  assert.deepEqual(promptParts(lane), [1, 2, 3, 4, stripTitle(PADDED, 0), 5, 6]);
  assert.match(stripTitle(WIDE, 1), /^Image 2 · 500 × 300 · 1 \+ 2 × 1 crops · 1.998 rows/);
});

test("an image that is broken, or on its way, is not drawn", () => {
  const image = (complete: boolean, naturalWidth: number): boolean =>
    isDecoded({ complete, naturalWidth } as HTMLImageElement);
  assert.deepEqual([image(true, 27), image(true, 0), image(false, 0)], [true, false, false]);
});
