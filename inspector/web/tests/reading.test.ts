import assert from "node:assert/strict";
import { test } from "node:test";
import { figureName, nextCell, nextStop, plotStops } from "../src/figures/reading.ts";
import type { HeatSpec, PlotSpec } from "../src/figures/spec.ts";

const chart = (more: Partial<PlotSpec> = {}): PlotSpec => ({
  title: "Chart",
  x: { name: "step", from: 0, to: 9 },
  y: { name: "ms", from: 0, to: 9 },
  series: [
    { name: "one", colour: "red", xs: [3, 1, 2], ys: [30, 10, null] },
    { name: "other", colour: "red", xs: [1, 4], ys: [5, NaN] },
  ],
  words: (x) => String(x),
  ...more,
});

const map = (more: Partial<HeatSpec> = {}): HeatSpec => ({
  title: "Map",
  key: "",
  x: { name: "position", count: 20 },
  y: { name: "layer", count: 4 },
  value: () => 0,
  colour: () => [0, 0, 0],
  words: () => "",
  ...more,
});

test("the name of a figure tells which way its axes go", () => {
  assert.match(figureName(map()), /position across, layer downwards, 20 by 4 cells/);
  assert.match(figureName(map({ y: { name: "drift", count: 4, up: true } })), /drift upwards/);
  assert.match(figureName(chart()), /step across, ms upwards/);
});

test("stops go by x, one for each x that has a value", () => {
  assert.deepEqual(
    plotStops(chart()).map(([x]) => x),
    [1, 3],
  );
});

test("if the words are of a point, every point is a stop, by x and then y", () => {
  const points = plotStops(chart({ words: (x, y) => `${x} ${y}` }));
  assert.deepEqual(points, [
    [1, 5],
    [1, 10],
    [3, 30],
  ]);
});

test("a stop at a bar is its upper end, also on top of another bar", () => {
  const [xs, colour, kind] = [[1, 2], "red", "bars"] as const;
  const series = [
    { name: "below", kind, colour, xs, ys: [5, 3] },
    { name: "above", kind, colour, xs, ys: [2, null], base: [5, 3] },
  ];
  assert.deepEqual(plotStops(chart({ series })), [
    [1, 7],
    [2, 3],
  ]);
});

test("a chart without words has no stops", () => {
  assert.equal(nextStop(chart({ words: undefined }), null, "Home", false), null);
});

test("reading starts at the cursor and ends at the last stop", () => {
  const spec = chart({ at: 1 });
  assert.deepEqual(nextStop(spec, null, "ArrowRight", false), [3, 30]);
  assert.deepEqual(nextStop(spec, null, "ArrowRight", true), [3, 30]);
});

test("reading goes on from the last stop if there is no cursor", () => {
  assert.deepEqual(nextStop(chart(), [3, 30], "ArrowLeft", false)?.[0], 1);
});

test("other keys do not read", () => {
  assert.equal(nextStop(chart(), null, "a", false), null);
  assert.equal(nextCell(map(), null, "a", false), null);
});

test("arrows move by a cell, with Shift by ten, and stay on the map", () => {
  const last = { x: 15, y: 1 };
  assert.deepEqual(nextCell(map(), last, "ArrowDown", false), { x: 15, y: 2 });
  assert.deepEqual(nextCell(map(), last, "ArrowRight", true), { x: 19, y: 1 });
});

test("cells are read from the cursor where it has a place", () => {
  const spec = map({ at: { x: null, y: 3 } });
  assert.deepEqual(nextCell(spec, { x: 5, y: 0 }, "ArrowRight", false), { x: 6, y: 3 });
});

test("Home and End go to the ends of the row", () => {
  const last = { x: 5, y: 2 };
  assert.deepEqual(nextCell(map(), last, "Home", false), { x: 0, y: 2 });
  assert.deepEqual(nextCell(map(), last, "End", false), { x: 19, y: 2 });
});

test("a cell that was read of a larger map leads to one that the map has", () => {
  const last = { x: 50, y: 31 };
  const keys = ["Home", "End", "ArrowUp", "Enter"];
  assert.deepEqual(
    keys.map((key) => nextCell(map(), last, key, false)),
    [
      { x: 0, y: 3 },
      { x: 19, y: 3 },
      { x: 19, y: 2 },
      { x: 19, y: 3 },
    ],
  );
});

test("a figure's name says its axes, its size and how it is read", () => {
  const end = " Use the arrow keys to read the values.";
  assert.equal(figureName(chart()), "Chart. step across, ms upwards." + end);
  assert.equal(
    figureName(map({ y: { name: "", count: 4 } })),
    "Map. position across, 20 by 4 cells." + end + " Plus and minus zoom, 0 shows all cells.",
  );
});
