import assert from "node:assert/strict";
import { test } from "node:test";
import type { Rgb } from "../src/base/colours.ts";
import { gridOf, pixels, reduced, scattered, severalOf } from "../src/figures/cells.ts";
import type { CellPoint } from "../src/figures/spec.ts";
import { cursorFrames, runs } from "../src/figures/heat.ts";

const axis = (count: number): { name: string; count: number } => ({ name: "", count });
const RED: Rgb = [255, 0, 0];
const BLUE: Rgb = [0, 0, 255];

/** A grid of one row; null is no data. */
function row(values: (number | null)[]): ReturnType<typeof gridOf> {
  return gridOf({ x: axis(values.length), y: axis(1), value: (x) => values[x] });
}

/** A grid of one row of codes, of which 255 is no data. */
function codes(values: number[]): ReturnType<typeof gridOf> {
  const palette = Array.from({ length: 255 }, () => RED);
  const cells = { codes: Uint8Array.from(values), palette };
  return gridOf({ x: axis(values.length), y: axis(1), value: () => null, cells: () => cells });
}

test("a pixel of several values shows the largest of those that have data", () => {
  const { values } = reduced(row([1, 7, null, -3, null, null]), 3, 1, "largest");
  assert.deepEqual([...values], [7, -3, NaN]);
});

test("a pixel of several values shows the mean of those that have data", () => {
  const { values } = reduced(row([1, 7, null, -3, null, null]), 3, 1, "mean");
  assert.deepEqual([...values], [4, -3, NaN]);
});

test("a pixel of several codes shows the largest that is not the code of no data", () => {
  const { values } = reduced(codes([3, 255, 255, 255, 0, 1]), 3, 1, "largest");
  assert.deepEqual([...values], [3, -1, 1]);
});

test("a mean of codes leaves out the code of no data", () => {
  const grid = reduced(codes([3, 255, 255, 255, 0, 2]), 3, 1, "mean");
  assert.deepEqual([...grid.values], [3, -1, 1]);
  assert.deepEqual([...pixels(grid, { colour: () => BLUE })], [0xff0000ff, 0, 0xff0000ff]);
});

test("a pixel of several codes shows the first of the legend, that is the smallest", () => {
  const { values } = reduced(codes([3, 255, 255, 255, 0, 1]), 3, 1, "first");
  assert.deepEqual([...values], [3, -1, 0]);
  assert.deepEqual([...reduced(row([2, 1, null, 4]), 2, 1, "first").values], [1, 4]);
});

test("a mean is taken of the numbers that codes stand for, and shown as the code next to it", () => {
  const palette = [RED, RED, RED, RED];
  const cells = { codes: Uint8Array.of(0, 3, 3, 255), palette, numbers: [0, 1, 10, 100] };
  const grid = gridOf({ x: axis(4), y: axis(1), value: () => null, cells: () => cells });
  assert.deepEqual([...reduced(grid, 2, 1, "mean").values], [2, 3]);
  assert.deepEqual([...reduced(grid, 1, 1, "mean").values], [3]);
});

test("codes may have two bytes", () => {
  const cells = { codes: Uint16Array.of(300, 65535, 7), palette: Array<Rgb>(301).fill(RED) };
  const grid = gridOf({ x: axis(3), y: axis(1), value: () => null, cells: () => cells });
  assert.deepEqual([...reduced(grid, 1, 1, "largest").values], [300]);
  assert.deepEqual([...pixels(grid, { colour: () => BLUE })], [0xff0000ff, 0, 0xff0000ff]);
});

test("what several cells show depends on the legend", () => {
  assert.equal(severalOf({}), "largest");
  assert.equal(severalOf({ legend: { items: [] } }), "first");
  assert.equal(severalOf({ several: "mean", legend: { items: [] } }), "mean");
});

test("codes become pixels without a call for each cell", () => {
  const cells = {
    codes: Uint8Array.from({ length: 64 * 64 }, (_, i) => i % 256),
    palette: Array<Rgb>(256).fill(RED),
  };
  let calls = 0;
  const count = (): null => (calls++, null);
  const spec = { x: axis(64), y: axis(64), value: count, cells: () => cells };
  const colour = (): Rgb => (calls++, BLUE);
  pixels(reduced(gridOf(spec), 16, 16, "largest"), { colour });
  assert.ok(calls <= 256, String(calls));
});

test("rows are reduced too, and every cell is in one pixel", () => {
  const grid = gridOf({ x: axis(3), y: axis(5), value: (x, y) => (y === 3 && x === 1 ? 9 : 0) });
  const small = reduced(grid, 2, 2, "largest");
  assert.equal([...small.values].filter((value) => value === 9).length, 1);
  assert.deepEqual([small.wide, small.high], [2, 2]);
});

test("a grid that fits is left alone", () => {
  const grid = row([1, 2, 3]);
  assert.equal(reduced(grid, 3, 10, "largest"), grid);
});

test("codes take the colours of the palette, and codes without one are transparent", () => {
  const cells = { codes: Uint8Array.of(0, 1, 2), palette: [RED, null] };
  const spec = {
    x: axis(3),
    y: axis(1),
    value: () => null,
    colour: () => BLUE,
    cells: () => cells,
  };
  assert.deepEqual([...pixels(gridOf(spec), spec)], [0xff0000ff, 0, 0]);
});

test("values take the colours of the spec, each computed once", () => {
  let calls = 0;
  const colour = (): Rgb => {
    calls++;
    return BLUE;
  };
  assert.deepEqual([...pixels(row([5, null, 5]), { colour })], [0xffff0000, 0, 0xffff0000]);
  assert.equal(calls, 1);
});

test("runs join equal neighbours and leave out cells without a name", () => {
  const name = (x: number): string => "aab b"[x].trim();
  const joined = runs(5, name, true).map(({ from, to }) => [from, to]);
  assert.deepEqual(joined, [
    [0, 2],
    [2, 3],
    [4, 5],
  ]);
  assert.equal(runs(5, name, false).length, 4);
});

test("few cells of a large map are drawn as all cells are", () => {
  const points: CellPoint[] = [
    [0, 0, 5],
    [1, 1, 9],
    [1, 0, 7],
    [4, 2, 3],
  ];
  const spec = { x: axis(5), y: axis(3) };
  const value = (x: number, y: number): number | null =>
    points.find((point) => point[0] === x && point[1] === y)?.[2] ?? null;
  for (const [wide, high] of [
    [5, 3],
    [2, 2],
    [3, 1],
    [90, 90],
  ]) {
    const whole = reduced(gridOf({ ...spec, value }), wide, high, "largest");
    assert.deepEqual(scattered(points, spec, wide, high).values, whole.values);
  }
});

test("the cursor has no frame beyond the cells, as at a token of the longer answer", () => {
  const spec = { x: { name: "answer token", count: 4 }, y: { name: "layer", count: 2 } };
  const box = { left: 0, top: 0, right: 40, bottom: 20 };
  assert.deepEqual(cursorFrames(spec, box, { x: 4, y: 1 }), [
    { x: 0, y: 9, width: 40, height: 12 },
  ]);
  assert.equal(cursorFrames(spec, box, { x: 3, y: 2 }).length, 1);
  assert.deepEqual(cursorFrames(spec, box, { x: null, y: null }), []);
});
