import assert from "node:assert/strict";
import { test } from "node:test";
import type { Rgb } from "../src/base/colours.ts";
import { HeatState } from "../src/figures/heat_state.ts";
import { legendKeys } from "../src/figures/legend.ts";
import { placeInRange, ranged, rangeFault, rangeTicks } from "../src/figures/range.ts";
import type { HeatSpec, ScaleLegend } from "../src/figures/spec.ts";

const LOG = { from: 1e-4, to: 1, log: true };
const GREEN: Rgb = [0, 255, 0];
const legend: ScaleLegend = {
  kind: "scale",
  name: "drift",
  range: LOG,
  colour: (place) => [Math.round(100 * place), 0, 0],
  ticks: [[0, "≤ 0.0001"]],
  marks: [0.5],
};

/** Codes 0 to 4 stand for the drifts 10⁻⁴ to 1, and code 9 is a word. */
const map = (more: Partial<HeatSpec> = {}): HeatSpec => ({
  title: "Map",
  key: "k",
  x: { name: "position", count: 6 },
  y: { name: "step", count: 1 },
  value: (x) => (x < 5 ? x : 9),
  colour: (code) => (code === 9 ? GREEN : [25 * code, 0, 0]),
  plain: (code) => (code === 9 ? "computed" : 10 ** (code - 4)),
  cells: () => ({
    codes: Uint8Array.of(0, 1, 2, 3, 4, 9),
    palette: Array.from({ length: 10 }, (_, code) => (code === 9 ? GREEN : [25 * code, 0, 0])),
  }),
  legend,
  words: () => "",
  ...more,
});

test("places are within the range, logarithmic or linear", () => {
  assert.equal(placeInRange(LOG, 0.01), 0.5);
  assert.deepEqual(
    [0, 1e-9, 7].map((number) => placeInRange(LOG, number)),
    [0, 0, 1],
  );
  const linear = { from: -1, to: 3, log: false };
  assert.deepEqual(
    [-5, 0, 9].map((number) => placeInRange(linear, number)),
    [0, 0.25, 1],
  );
});

test("a range that cannot be drawn is refused with a reason", () => {
  assert.equal(rangeFault({ from: 0.1, to: 1, log: true }), "");
  assert.match(rangeFault({ from: 1, to: 1, log: false }), /below the second/);
  assert.match(rangeFault({ from: 0, to: 1, log: true }), /above 0/);
  assert.match(rangeFault({ from: NaN, to: 1, log: false }), /number in both/);
});

test("labels are at both ends, and at round numbers that have room", () => {
  assert.deepEqual(
    rangeTicks({ from: 0.001, to: 0.1, log: true }).map(([, text]) => text),
    ["≤ 0.001", "0.01", "≥ 0.1"],
  );
  assert.deepEqual(
    rangeTicks({ from: 0.1, to: 1, log: true }).map(([, text]) => text),
    ["≤ 0.1", "0.2", "0.4", "≥ 1"],
  );
  assert.deepEqual(rangeTicks({ from: 0, to: 40, log: false }), [
    [0, "≤ 0"],
    [0.25, "10"],
    [0.5, "20"],
    [0.75, "30"],
    [1, "≥ 40"],
  ]);
  const percent = (share: number): string => `${100 * share} %`;
  assert.equal(rangeTicks({ from: 0, to: 0.5, log: false }, percent)[0][1], "≤ 0 %");
});

test("another range changes colours, palette, labels and marks, not other colours", () => {
  const found = ranged(map(), { from: 0.01, to: 1, log: true });
  assert.deepEqual(
    [0, 2, 3, 4, 9].map((code) => found.colour(code)),
    [[0, 0, 0], [0, 0, 0], [50, 0, 0], [100, 0, 0], GREEN],
  );
  const palette = found.cells?.().palette;
  assert.deepEqual([palette?.[3], palette?.[9]], [[50, 0, 0], GREEN]);
  assert.notEqual(found.key, "k");
  const shown = found.legend as ScaleLegend;
  assert.equal(shown.ticks[0][1], "≤ 0.01");
  assert.deepEqual(shown.marks, [0]);
  assert.deepEqual(shown.range, { from: 0.01, to: 1, log: true });
});

test("a code without data stays without", () => {
  const cells = (): ReturnType<NonNullable<HeatSpec["cells"]>> => ({
    codes: Uint8Array.of(0, 1),
    palette: [null, GREEN],
  });
  const found = ranged(map({ cells }), { from: 0.01, to: 1, log: true });
  assert.equal(found.cells?.().palette[0], null);
});

test("a legend without a range is fixed", () => {
  const spec = map({ legend: { ...legend, range: undefined } });
  assert.equal(ranged(spec, LOG), spec);
});

test("the range of the view is no range of the reader's", () => {
  const state = new HeatState(map());
  state.range = { ...LOG };
  assert.equal(state.range, null);
  state.range = { ...LOG, log: false };
  assert.deepEqual(state.range, { ...LOG, log: false });
});

test("the reader's range stays with another layer, and goes with another scale", () => {
  const state = new HeatState(map());
  state.range = { from: 0.01, to: 0.1, log: true };
  state.take(map({ key: "other layer" }));
  assert.ok(state.range);
  state.take(map({ legend: { ...legend, range: { from: 0, to: 1, log: false } } }));
  assert.equal(state.range, null);
});

test("the legend says what a pixel of several cells shows", () => {
  const last = (spec: HeatSpec): string | undefined => legendKeys(spec, true).at(-1)?.text;
  assert.match(last(map()) ?? "", /shows the largest$/);
  assert.match(last(map({ several: "mean" })) ?? "", /shows the mean$/);
  assert.match(last(map({ legend: { items: [] } })) ?? "", /first one in this legend$/);
  assert.doesNotMatch(legendKeys(map(), false).at(-1)?.text ?? "", /pixel/);
});
