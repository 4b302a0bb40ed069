import assert from "node:assert/strict";
import { test } from "node:test";
import { wheelFactor } from "../src/figures/gestures.ts";
import { HeatState } from "../src/figures/heat_state.ts";
import type { HeatSpec } from "../src/figures/spec.ts";
import { dragBox, placeIn, windowed } from "../src/figures/zoom.ts";

const BOX = { left: 50, top: 10, right: 450, bottom: 210 };

/** A map of 100 by 50 cells with the values 100 y + x, in a box of 400 by 200 pixels. */
const map = (more: Partial<HeatSpec> = {}): HeatSpec => ({
  title: "Map",
  key: "k",
  x: { name: "position", count: 100 },
  y: { name: "step", count: 50 },
  value: (x, y) => 100 * y + x,
  colour: () => [0, 0, 0],
  words: () => "",
  ...more,
});

/** The corners of what is shown: x.from, x.to, y.from, y.to. */
function shown(state: HeatState): number[] | null {
  const { cells } = state;
  return cells && [cells.x.from, cells.x.to, cells.y.from, cells.y.to];
}

test("at first all cells are shown, and the spec is left alone", () => {
  const spec = map();
  const state = new HeatState(spec);
  assert.equal(state.cells, null);
  assert.equal(state.seen, spec);
  assert.equal(state.words(), "");
});

test("zooming keeps the cell under the pointer in place", () => {
  const state = new HeatState(map());
  state.zoomAt(BOX, 0.5, 150, 160);
  // The point (25, 37.5) was at a quarter and three quarters, and still is.
  assert.deepEqual(shown(state), [13, 63, 19, 44]);
});

test("zooming out again and out further shows the whole map", () => {
  const state = new HeatState(map());
  state.zoomAt(BOX, 0.5, 50, 10);
  assert.deepEqual(shown(state), [0, 50, 0, 25]);
  state.zoomAt(BOX, 4, 50, 10);
  assert.equal(shown(state), null);
});

test("small turns of the wheel add up", () => {
  const state = new HeatState(map());
  for (let i = 0; i < 100; i++) state.zoomAt(BOX, 0.99, 50, 10);
  assert.deepEqual(shown(state), [0, 37, 0, 18]);
});

test("an axis of large cells is not zoomed", () => {
  const state = new HeatState(map({ y: { name: "layer", count: 4 } }));
  state.zoomAt(BOX, 0.5, 50, 10);
  assert.deepEqual(shown(state), [0, 50, 0, 4]);
  for (let i = 0; i < 20; i++) state.zoomAt(BOX, 0.5, 50, 10);
  assert.deepEqual(shown(state), [0, 17, 0, 4]);
});

test("moving stops at the edges", () => {
  const state = new HeatState(map());
  state.zoomAt(BOX, 0.5, 50, 10);
  state.moveBy(BOX, -80, -80);
  assert.deepEqual(shown(state), [10, 60, 10, 35]);
  state.moveBy(BOX, 4000, -4000);
  assert.deepEqual(shown(state), [0, 50, 25, 50]);
});

test("a drag shows all cells that its rectangle touches", () => {
  const state = new HeatState(map());
  // Cells are 4 by 4 pixels: from the middle of cell (10, 5) to that of (20, 15).
  assert.ok(state.zoomInto(BOX, dragBox(BOX, [92, 32], [132, 72])));
  assert.deepEqual(shown(state), [10, 21, 5, 16]);
  assert.ok(state.zoomInto(BOX, dragBox(BOX, [450, 10], [250, 110])));
  assert.deepEqual(shown(state), [15, 21, 5, 11]);
});

test("a flat drag chooses a range of one axis, and a tiny one nothing", () => {
  const state = new HeatState(map());
  assert.ok(state.zoomInto(BOX, dragBox(BOX, [90, 100], [130, 103])));
  assert.deepEqual(shown(state), [10, 20, 0, 50]);
  state.reset();
  assert.equal(state.zoomInto(BOX, dragBox(BOX, [90, 100], [94, 103])), false);
  assert.equal(shown(state), null);
});

test("a drag ends at the edge of the box", () => {
  assert.deepEqual(dragBox(BOX, [100, 100], [900, -50]), {
    left: 100,
    right: 450,
    top: 10,
    bottom: 100,
  });
});

test("reading a cell beyond the edge moves the shown part", () => {
  const state = new HeatState(map());
  state.zoomInto(BOX, dragBox(BOX, [90, 50], [130, 90]));
  assert.deepEqual(shown(state), [10, 20, 10, 20]);
  state.reveal({ x: 20, y: 4 });
  assert.deepEqual(shown(state), [11, 21, 4, 14]);
  state.reveal({ x: 15, y: 10 });
  assert.deepEqual(shown(state), [11, 21, 4, 14]);
});

test("the shown part has the values, ticks, lines, dots and edges of its cells", () => {
  const spec = map({
    x: { name: "position", count: 100, marks: [{ at: 5 }, { at: 12, strong: true }] },
    dots: [
      [3, 3],
      [11, 22],
    ],
    under: (x, y) => x === 10 && y === 20,
    column: { name: "token", text: (x, y) => `${x}/${y}` },
    at: { x: 11, y: 3 },
  });
  const seen = windowed(spec, { x: { from: 10, to: 14 }, y: { from: 20, to: 23 } });
  assert.deepEqual([seen.x.count, seen.y.count], [4, 3]);
  assert.deepEqual([seen.value(0, 0), seen.value(3, 2)], [2010, 2213]);
  assert.deepEqual([seen.x.tick?.(0), seen.y.tick?.(2)], ["11", "23"]);
  assert.deepEqual(seen.x.marks, [{ at: 2, strong: true }]);
  assert.deepEqual(seen.dots, [[1, 2]]);
  assert.deepEqual([seen.under?.(0, 0), seen.under?.(1, 0)], [true, false]);
  assert.equal(seen.column?.text(1, 2), "11/22");
  assert.deepEqual(seen.at, { x: 1, y: null });
  assert.notEqual(seen.key, spec.key);
});

test("codes are cut with the rest", () => {
  const codes = Uint8Array.from({ length: 5000 }, (_, i) => i % 100);
  const spec = map({ cells: () => ({ codes, palette: [] }) });
  const seen = windowed(spec, { x: { from: 98, to: 100 }, y: { from: 2, to: 4 } });
  assert.deepEqual([...(seen.cells?.().codes ?? [])], [98, 99, 98, 99]);
  assert.equal(codes[0], 0);
});

test("ticks of their own move with their cells", () => {
  const ticks = [
    [0, "a"],
    [25, "b"],
    [50, "c"],
  ] as const;
  const spec = map({ x: { name: "x", count: 100, ticks } });
  const seen = windowed(spec, { x: { from: 20, to: 50 }, y: { from: 0, to: 50 } });
  assert.deepEqual(seen.x.ticks, [
    [5, "b"],
    [30, "c"],
  ]);
});

test("a place that is not shown has no line, and one that marks a row has no column", () => {
  const cells = { x: { from: 10, to: 20 }, y: { from: 0, to: 5 } };
  assert.deepEqual(placeIn(cells, { x: 20, y: 4 }), { x: null, y: 4 });
  assert.deepEqual(placeIn(cells, { x: null, y: 0 }), { x: null, y: 0 });
});

test("cells of the shown part are known by their place in the whole map", () => {
  const state = new HeatState(map());
  state.zoomInto(BOX, dragBox(BOX, [90, 50], [130, 90]));
  assert.deepEqual(state.wholeCell({ x: 1, y: 2 }), { x: 11, y: 12 });
  assert.deepEqual(state.shownAt({ x: 11, y: 12 }), { x: 1, y: 2 });
  assert.equal(state.words(), "Shown: position 11 to 20, step 11 to 20");
});

test("keys zoom around the cursor if it is shown, else around the middle", () => {
  const state = new HeatState(map());
  assert.deepEqual(state.around({ x: 3, y: 4 }), { x: 3.5, y: 4.5 });
  assert.deepEqual(state.around(null), { x: 50, y: 25 });
  state.zoomInto(BOX, dragBox(BOX, [90, 50], [130, 90]));
  assert.deepEqual(state.around({ x: 3, y: 12 }), { x: 15, y: 15 });
});

test("the part stays with another layer, and goes with another size", () => {
  const state = new HeatState(map());
  state.zoomAt(BOX, 0.5, 50, 10);
  state.take(map({ key: "other layer" }));
  assert.deepEqual(shown(state), [0, 50, 0, 25]);
  state.take(map({ x: { name: "position", count: 99 } }));
  assert.equal(shown(state), null);
});

test("a turn of the wheel zooms by at most the root of two, either way", () => {
  assert.equal(wheelFactor({ deltaY: 100, deltaMode: 0 }), Math.SQRT2);
  assert.equal(wheelFactor({ deltaY: -3, deltaMode: 1 }), 2 ** -0.48);
  assert.equal(wheelFactor({ deltaY: -5, deltaMode: 0 }), 2 ** -0.05);
});
