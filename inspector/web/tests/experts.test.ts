import assert from "node:assert/strict";
import test from "node:test";
import { NO_DATA } from "../src/inspect/codes.ts";
import { changedRows, expertSentence, layerWords, meanChanges } from "../src/inspect/experts.ts";
import type { NdArray } from "../src/inspect/arrays.ts";
import { shareAbove } from "../src/inspect/tally.ts";
import { bytes, cutPart } from "./inspected.ts";

const __ = NO_DATA;
const ACTIVE = 3;
/** Three steps, two layers, four positions of which two are the prompt. */
const CHANGES = [
  [__, __, __, __],
  [__, __, __, __],
  [0, 0, 1, 3],
  [2, 2, 2, __],
  [0, __, __, __],
  [__, __, __, __],
];
const PROBED = [
  [0, 0, 0, 0],
  [1, 3, __, 0],
];
const DOCUMENT = {
  active: ACTIVE,
  count: 8,
  changes: bytes([3, 2, 4], CHANGES.flat()),
  probe_step: bytes([1], [1]),
  probed: bytes([1, 2, 4], PROBED.flat()),
};

function counts(from?: number): { rows: NdArray; probed: NdArray } {
  const query = { view: "experts", part: "counts", position_from: from };
  return cutPart({ experts: DOCUMENT }, query);
}

test("rows are counted by changed experts; cells without data are left out", () => {
  const { rows, probed } = counts();
  assert.deepEqual(rows.shape, [3, 2, ACTIVE + 1]);
  assert.deepEqual(Array.from(rows.values.slice(8, 16)), [2, 1, 0, 1, 0, 0, 3, 0]);
  assert.deepEqual(Array.from(probed.values), [4, 0, 0, 0, 1, 1, 0, 1]);
  assert.deepEqual(Array.from(counts(2).rows.values.slice(8, 12)), [0, 1, 0, 1]);
});

test("a row counts if at least so many experts changed", () => {
  const { rows } = counts();
  assert.deepEqual(changedRows(rows, 1).at(1, 0), { seen: 4, above: 2 });
  assert.deepEqual(changedRows(rows, 2).at(1, 0), { seen: 4, above: 1 });
  assert.equal(shareAbove(changedRows(rows, 1).at(0, 0)), null);
});

test("the mean of a layer is over the rows that were computed again", () => {
  assert.deepEqual(meanChanges(counts().rows), [4 / 5, 2]);
  assert.deepEqual(meanChanges(bytes([1, 1, 4], [0, 0, 0, 0])), [null]);
});

test("the sentences tell changes, the layer that changes most, and what the probes found", () => {
  assert.equal(
    expertSentence(DOCUMENT, counts(), 1, { recorded: "", where: "" }),
    "Each token uses 3 of 8 experts. In 63 % of the recomputations (5 of 8, over all layers and steps) a row uses at least 1 other expert than before. Layer 2 changes most (100 %). In the probed steps, 29 % of the feed-forward outputs in use were computed with at least 1 expert that the router would not choose now.",
  );
});

test("without probes or rows the sentences say less", () => {
  const none = { rows: bytes([1, 1, 4], [0, 0, 0, 0]), probed: bytes([0, 1, 4], []) };
  assert.equal(
    expertSentence(DOCUMENT, none, 1, { recorded: "recorded ", where: " in the answer" }),
    "Each token uses 3 of 8 experts. No recorded row in the answer was computed twice.",
  );
});

test("a layer tells of all outputs in use, also if none of its rows was computed again", () => {
  const known = { changed: 0.4, mean: 0.8, probed: 0.25 };
  assert.equal(
    layerWords(0, known, ACTIVE),
    "Layer 1: 40 % of the rows, 0.8 of 3 experts on average; in use, of experts that the router would not choose now: 25 %",
  );
  assert.equal(
    layerWords(1, { changed: null, mean: null, probed: 0.25 }, ACTIVE),
    "Layer 2: no experts, or no row computed again; in use, of experts that the router would not choose now: 25 %",
  );
  assert.equal(
    layerWords(1, { ...known, probed: null }, ACTIVE),
    "Layer 2: 40 % of the rows, 0.8 of 3 experts on average",
  );
});

test("maps of a replay file are those of a layer, of a step and of a probe", () => {
  const cells = (query: object): number[] =>
    Array.from(
      cutPart<{ cells: NdArray }>({ experts: DOCUMENT }, { view: "experts", ...query }).cells
        .values,
    );
  assert.deepEqual(
    cells({ part: "map", layer: 1 }),
    [1, 3, 5].flatMap((i) => CHANGES[i]),
  );
  assert.deepEqual(
    cells({ part: "map", step: 1 }),
    [2, 3].flatMap((i) => CHANGES[i]),
  );
  assert.deepEqual(cells({ part: "probed", probe: 0 }), PROBED.flat());
});
