import assert from "node:assert/strict";
import test from "node:test";
import { figureRows } from "../src/figures/table.ts";
import { rowsByBins } from "../src/inspect/replay_slices/drifts.ts";
import { cutSlice } from "../src/inspect/replay_slices/index.ts";
import type { Panel } from "../src/inspect/panel.ts";
import { binAxis, binSpan, scatter, statWords } from "../src/inspect/views/scatter.ts";
import { floats, ints } from "./inspected.ts";

// Two pairs, two layers, two by two bins.
const COUNTS = ints([2, 2, 2, 2], [1, 2, 3, 4, 10, 20, 30, 40, 5, 6, 7, 8, 0, 0, 0, 1]);

test("the rows of a layer are its own", () => {
  assert.deepEqual(Array.from(rowsByBins(COUNTS, 0, 1)), [10, 20, 30, 40]);
});

test("the rows of all layers are the sums, pair by pair", () => {
  assert.deepEqual(Array.from(rowsByBins(COUNTS, 0, null)), [11, 22, 33, 44]);
  assert.deepEqual(Array.from(rowsByBins(COUNTS, 1, null)), [5, 6, 7, 9]);
});

test("a replay file says which steps were counted, in one layer and in all", () => {
  const scatter = {
    pairs: [["v", "attn"]] as [string, string][],
    counts: COUNTS,
    stats: floats([1, 3, 3], new Array<number>(9).fill(0)),
    rows: ints([1, 3], [5, 6, 11]),
    every: 4,
  };
  for (const layer of [undefined, 1]) {
    const query = { view: "scatter", x: "v", y: "attn", layer };
    assert.equal(cutSlice({ scatter }, query).facts.every, 4);
  }
});

test("the first bin begins at 0 and the last ends at 2", () => {
  assert.equal(binSpan(0, 4), "0 to 0.0010");
  assert.equal(binSpan(3, 4), "0.10 to 2");
});

test("a correlation is a number that is not rounded to 0, or a dash", () => {
  const said = "Spearman 0.5, Pearson -0.0003, Pearson of the logarithms –";
  assert.equal(statWords([-0.0003, NaN, 0.5]), said);
});

test("the CSV file names the bin of each count on both axes", () => {
  const rows = figureRows({
    title: "",
    key: "",
    x: binAxis("V", 4, false),
    y: binAxis("K", 4, true),
    value: (x, y) => 10 * x + y,
    colour: () => [0, 0, 0],
    unit: "rows",
    words: () => "",
  });
  assert.deepEqual(rows.slice(0, 2), [
    ["1 − cos, V", "1 − cos, K", "rows"],
    ["0 to 0.0010", "0.10 to 2", 0],
  ]);
  assert.deepEqual(rows.at(-1), ["0.10 to 2", "0 to 0.0010", 33]);
});

test("without the data of a pair, no figure and no sentence goes on as if it were read", () => {
  const gone = "It is gone.";
  const said: Record<string, string | null> = {};
  const blocks = {
    sum: { textContent: "of another pair", hidden: false },
    missing: { textContent: "", hidden: false },
  };
  const figure = (name: string): object => ({
    root: { hidden: false },
    wait: (reason: string | null) => (said[name] = reason),
  });
  const panel = {
    complete: true,
    spot: { step: 0, layer: 0 },
    choice: (name: string) => (name === "of" ? "v" : "all"),
    block: (name: keyof typeof blocks) => blocks[name],
    figure,
    parts: (one: { wait: (reason: string) => void }) => (one.wait(gone), null),
  } as unknown as Panel;
  scatter.draw(panel, undefined);
  assert.deepEqual(said, { "scatter-1": gone, "scatter-2": gone, "scatter-layers": gone });
  assert.deepEqual([blocks.sum.textContent, blocks.missing.hidden], ["", true]);
});
