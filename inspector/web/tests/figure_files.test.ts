import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { crc32 } from "node:zlib";
import { attempt } from "../src/figures/export.ts";
import { PAPER, retinted, VARIABLES, type Inks } from "../src/figures/inks.ts";
import { withResolution } from "../src/figures/png.ts";
import { wrapped } from "../src/figures/svg.ts";
import { figureRows, fileStem } from "../src/figures/table.ts";

test("a file's name says run, lane, layer from 1, quantity and figure", () => {
  const about = { run: "1A2b3c4d5e6f", lane: "a", layer: 3, quantity: "v" };
  assert.equal(fileStem("drift-steps", about), "driftscope-1a2b3c4d-lane-a-layer-4-v-drift-steps");
});

test("a file that the browser cannot write is told, and one that it writes is not", async () => {
  const told: string[] = [];
  await attempt(
    () => Promise.reject(new Error("too large")),
    () => told.push("png"),
  );
  await attempt(
    () => undefined,
    () => told.push("svg"),
  );
  assert.deepEqual(told, ["png"]);
});

test("what is not known is left out of a file's name", () => {
  assert.equal(fileStem("rho", { layer: 0 }), "driftscope-layer-1-rho");
  assert.equal(fileStem("rho"), "driftscope-rho");
});

test("a file's name has only letters, digits and hyphens", () => {
  assert.equal(fileStem("x", { quantity: "attn. / ρ output " }), "driftscope-attn-output-x");
});

test("a chart's rows are its values, series by series", () => {
  const rows = figureRows({
    title: "",
    x: { name: "step", from: 0, to: 1 },
    y: { name: "ms", from: 0, to: 1 },
    series: [{ name: "A", colour: "", xs: [1, 2], ys: [5, null] }],
  });
  assert.deepEqual(rows, [
    ["series", "step", "ms"],
    ["A", 1, 5],
    ["A", 2, null],
  ]);
});

test("the rows of a histogram have both ends of each bin, the first from 0", () => {
  const bars = { kind: "bars", colour: "", xs: [0.1, 0.3], ends: [0.3, 2] } as const;
  const rows = figureRows({
    title: "",
    x: { name: "drift", from: 0.1, to: 2, log: true },
    y: { name: "rows", from: 0, to: 9 },
    series: [
      { ...bars, name: "reused", least: 0, ys: [5, 1] },
      { ...bars, name: "recomputed", ys: [2, 3] },
    ],
  });
  assert.deepEqual(rows, [
    ["series", "from drift", "to drift", "rows"],
    ["reused", 0, 0.3, 5],
    ["reused", 0.3, 2, 1],
    ["recomputed", 0.1, 0.3, 2],
    ["recomputed", 0.3, 2, 3],
  ]);
});

test("a heat map's rows are its cells with their names and plain values", () => {
  const rows = figureRows({
    title: "",
    key: "",
    x: { name: "step", count: 2 },
    y: { name: "kind", count: 1, tick: () => "all" },
    value: (x) => (x ? 7 : null),
    colour: () => [0, 0, 0],
    plain: (value) => value / 10,
    unit: "share",
    words: () => "",
  });
  assert.deepEqual(rows, [
    ["step", "kind", "share"],
    [1, "all", null],
    [2, "all", 0.7],
  ]);
});

test("a heat map of steps by steps has two columns with different names", () => {
  const axis = { name: "step", count: 1 };
  const rows = figureRows({
    ...{ title: "", key: "", colour: () => [0, 0, 0], words: () => "", value: () => 7 },
    x: axis,
    y: axis,
  });
  assert.deepEqual(rows, [
    ["other step", "step", "value"],
    [1, 1, 7],
  ]);
});

test("the rows of a heat map have a name in its file also if their axis has none", () => {
  const rows = figureRows({
    ...{ title: "", key: "", colour: () => [0, 0, 0], words: () => "", value: () => 7 },
    x: { name: "answer token", count: 1 },
    y: { name: "", count: 1, tick: () => "step" },
  });
  assert.deepEqual(rows, [
    ["answer token", "row", "value"],
    [1, "step", 7],
  ]);
});

test("a PNG file states its resolution in a valid chunk after the header", () => {
  const file = Uint8Array.from({ length: 40 }, (_, i) => i);
  const out = withResolution(file, 300);
  const view = new DataView(out.buffer);
  assert.equal(new TextDecoder().decode(out.subarray(37, 41)), "pHYs");
  assert.equal(view.getUint32(41), 11811);
  assert.equal(view.getUint32(50), crc32(out.subarray(37, 50)));
  assert.deepEqual([...out.subarray(0, 33), ...out.subarray(54)], [...file]);
});

test("the inks of saved figures are those of the light theme", () => {
  const sheets = ["page.css", "race.css"].map((name) => readFileSync("../static/" + name, "utf8"));
  const light = sheets.join("").replace(/\.dark[^{]*\{[^}]*\}/g, "");
  for (const name of Object.keys(VARIABLES) as (keyof Inks)[]) {
    assert.match(light, new RegExp(VARIABLES[name] + ": " + PAPER[name] + "[; ]"));
  }
});

test("inks of one theme become those of another, and other colours stay", () => {
  const shade = retinted({ ...PAPER, a: "#aab6c5" }, PAPER);
  assert.deepEqual([shade("#aab6c5"), shade("#123456")], [PAPER.a, "#123456"]);
});

test("a long title is broken between words", () => {
  const lines = wrapped("one two threefour five", 8, (text) => text.length);
  assert.deepEqual(lines, ["one two", "threefour", "five"]);
});

test("a series may have another name in the file, or be left out", () => {
  const points = { colour: "", xs: [1], ys: [2] };
  const rows = figureRows({
    ...{ title: "", words: () => "", height: 100 },
    x: { name: "x", from: 0, to: 1 },
    y: { name: "y", from: 0, to: 2 },
    series: [
      { ...points, name: "line" },
      { ...points, name: "", table: "points" },
      { ...points, name: "", table: null },
    ],
  });
  assert.deepEqual(rows.slice(1), [
    ["line", 1, 2],
    ["points", 1, 2],
  ]);
});

test("a heat map may have another column in its file", () => {
  const rows = figureRows({
    ...{ title: "", key: "", colour: () => [0, 0, 0], words: () => "" },
    x: { name: "token", count: 2 },
    y: { name: "layer", count: 1 },
    value: (x) => x,
    column: { name: "best token", text: (x) => (x ? "=1" : null) },
  });
  assert.deepEqual(rows, [
    ["token", "layer", "value", "best token"],
    [1, 1, 0, null],
    [2, 1, 1, "=1"],
  ]);
});
