import assert from "node:assert/strict";
import { test } from "node:test";
import type { HeatSpec } from "../src/figures/spec.ts";
import {
  cellPlaces,
  cellStep,
  cellTicks,
  layoutOf,
  plotScale,
  plotTicks,
} from "../src/figures/scales.ts";

const places = (ticks: readonly { at: number }[]): number[] => ticks.map((tick) => tick.at);
const texts = (ticks: readonly { text: string }[]): string[] => ticks.map((tick) => tick.text);

test("ticks are 1, 2 or 5 times a power of ten apart and not more than fit", () => {
  const ticks = places(plotTicks({ name: "", from: 0, to: 97 }, 400, "x"));
  assert.deepEqual(ticks, [0, 20, 40, 60, 80]);
});

test("an axis too short for two ticks has one", () => {
  assert.equal(plotTicks({ name: "", from: 0, to: 97 }, 30, "x").length, 1);
});

test("an axis on which 2, 4, 6, 8 are too close and 5 is alone has 4 and 8", () => {
  const axis = { name: "", from: 0.4, to: 8.6, whole: true };
  assert.deepEqual(places(plotTicks(axis, 250, "x")), [4, 8]);
});

test("an axis of whole numbers has no ticks between them", () => {
  const ticks = places(plotTicks({ name: "", from: 0.5, to: 3.5, whole: true }, 1000, "x"));
  assert.deepEqual(ticks, [1, 2, 3]);
});

test("labels have the precision of their step", () => {
  const ticks = plotTicks({ name: "", from: 0, to: 1 }, 400, "x");
  assert.deepEqual(texts(ticks), ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
});

test("thousands are separated, and millions are abbreviated alike", () => {
  const thousands = texts(plotTicks({ name: "", from: 0, to: 4000 }, 130, "x"));
  assert.deepEqual(thousands, ["0", "2,000", "4,000"]);
  const millions = texts(plotTicks({ name: "", from: 0, to: 2e9 }, 320, "x"));
  assert.deepEqual(millions, ["0", "0.5G", "1G", "1.5G", "2G"]);
});

test("an axis may name its own ticks", () => {
  const axis = { name: "", from: 0, to: 2, whole: true, tick: (value: number) => `#${value}` };
  assert.deepEqual(texts(plotTicks(axis, 400, "x")), ["#0", "#1", "#2"]);
});

test("a logarithmic axis has ticks at powers of ten", () => {
  const ticks = plotTicks({ name: "", from: 1e-4, to: 10, log: true }, 400, "y");
  assert.deepEqual(texts(ticks), ["0.0001", "0.001", "0.01", "0.1", "1", "10"]);
});

test("a logarithmic axis far from 1 is labelled in powers, and only as many as fit", () => {
  const ticks = plotTicks({ name: "", from: 1e-7, to: 10, log: true }, 130, "y");
  assert.deepEqual(texts(ticks), ["10⁻⁷", "10⁻⁵", "10⁻³", "10⁻¹", "10"]);
});

test("a logarithmic axis within a power of ten has ticks at 2 and 5 times it", () => {
  const ticks = places(plotTicks({ name: "", from: 0.3, to: 6, log: true }, 400, "y"));
  assert.deepEqual(ticks, [0.5, 1, 2, 5]);
});

test("on a logarithmic axis zero stands at the lower end", () => {
  const scale = plotScale({ name: "", from: 0.01, to: 1, log: true }, 0, 100);
  assert.deepEqual([scale(0), scale(0.1), scale.invert(100)], [0, 50, 1]);
});

test("a linear scale continues beyond its ends", () => {
  assert.equal(plotScale({ name: "", from: 0, to: 10 }, 0, 100)(12), 120);
});

test("the step between the ticks of cells is the least power of two that fits", () => {
  assert.deepEqual(
    [cellStep(10, 10), cellStep(11, 10), cellStep(3072, 20), cellStep(5, 0)],
    [1, 2, 256, 8],
  );
});

test("ticks of cells stand in the middle of a cell with its number", () => {
  const ticks = cellTicks({ name: "", count: 130 }, 128, "x");
  assert.deepEqual(ticks[1], { at: 128.5, text: "129" });
});

test("ticks of cells may be given", () => {
  const axis = { name: "", count: 4, ticks: [[0, "low"] as const] };
  assert.deepEqual(cellTicks(axis, 400, "x"), [{ at: 0, text: "low" }]);
});

test("a point belongs to the cell around it, and to none outside the box", () => {
  const box = { left: 10, top: 0, right: 110, bottom: 20 };
  const { cell } = cellPlaces({ x: { name: "", count: 10 }, y: { name: "", count: 2 } }, box);
  assert.deepEqual(cell(25, 11), { x: 1, y: 1 });
  assert.equal(cell(9, 11), null);
});

/** A heat map of 100 by 100 cells. */
const heat = (more: Partial<HeatSpec>): HeatSpec => ({
  title: "",
  key: "",
  x: { name: "step", count: 100 },
  y: { name: "layer", count: 100 },
  value: () => 0,
  colour: () => [0, 0, 0],
  words: () => "",
  ...more,
});

test("names that do not fit on one line make the drawing higher, not its box lower", () => {
  const short = layoutOf(heat({ height: 200 }), 300);
  const long = layoutOf(heat({ height: 200, x: { name: "x".repeat(40), count: 100 } }), 300);
  assert.deepEqual([short.height, long.height], [200, 214]);
  assert.deepEqual(long.box, short.box);
});

test("a square drawing has a square box within its width", () => {
  const y = { name: "", count: 100, tick: () => "a long label" };
  const { box } = layoutOf(heat({ square: 460, y }), 300);
  assert.equal(box.right - box.left, box.bottom - box.top);
  assert.ok(box.right < 300);
});

test("the left margin has room for long labels, unless it is given", () => {
  const y = { name: "", count: 100, tick: () => "a long label" };
  const lefts = [heat({}), heat({ y }), heat({ y, left: 50 })].map(
    (spec) => layoutOf(spec, 300).box.left,
  );
  assert.deepEqual(lefts, [46, 80, 50]);
});
