import assert from "node:assert/strict";
import test from "node:test";
import { NO_DATA } from "../src/inspect/codes.ts";
import {
  DriftCounts,
  firstCounted,
  limitOf,
  type BudgetRules,
  type Recomputed,
} from "../src/inspect/drift_counts.ts";
import type { NdArray } from "../src/inspect/arrays.ts";
import { rowsDone } from "../src/inspect/plans.ts";
import { codeUpTo } from "../src/inspect/tally.ts";
import { rowsShown } from "../src/inspect/views/counts.ts";
import { isWhole, type Frame } from "../src/inspect/view.ts";
import { bytes, cutPart, ints } from "./inspected.ts";

const __ = NO_DATA;
const QUANTITIES = ["k", "v", "attn", "ffn", "q0"];

/** Three steps, two layers, four positions of which two are the prompt; V drifts as given. */
function counts(
  v: number[][],
  rules: BudgetRules | null,
  choice: {
    quantity?: string;
    answer?: boolean;
    sight?: number[];
    narrowed?: boolean;
    quantities?: string[];
  },
): DriftCounts {
  const drift = v.flatMap((row) =>
    QUANTITIES.flatMap((name) => (name === "v" ? row : [9, 9, 9, __])),
  );
  const none = ints([0], []);
  const frame: Frame = {
    level: "layers",
    lacks: [],
    narrowed: choice.narrowed ?? false,
    quantities: choice.quantities ?? QUANTITIES,
    causal: false,
    positions: 4,
    prompt: 2,
    block: 2,
    layers: 2,
    steps: 3,
    first: 0,
    revealed: none,
    before: none,
    ids: none,
    blocks: none,
    kinds: none,
    rows: none,
    sight: ints([3], choice.sight ?? [4, 4, 4]),
  };
  const documents = {
    frame,
    drift: { quantities: QUANTITIES, drift: bytes([3, 2, 5, 4], drift) },
    // All rows in step 1 and in layer 1 of step 2; then one row of the answer in every site.
    plan: {
      plan: bytes(
        [3, 2, 4, 1],
        [0xf0, 0xf0, 0xf0, 0x20, 0x20, 0x20].flatMap((byte) => [byte, byte, byte, byte]),
      ),
    },
  };
  const { quantity = "v", answer = false } = choice;
  const chosen = { quantity, limit: 0.05, answer };
  const position_from = firstCounted(frame, rules, chosen.answer);
  const query = { view: "drift", part: "counts", quantity: chosen.quantity, position_from };
  const code = codeUpTo(chosen.limit);
  const data = {
    seen: cutPart<{ rows: NdArray }>(documents, query).rows,
    above: cutPart<{ rows: NdArray }>(documents, { ...query, code }).rows,
    done: cutPart<{ done: NdArray }>(documents, rowsDone(position_from)).done,
  };
  return new DriftCounts(data, frame, rules, chosen);
}

const V = [
  [__, __, __, __],
  [__, __, __, __],
  [0, 0, 0, 250],
  [0, 250, __, __],
  [0, __, __, __],
  [__, __, __, __],
];
const RULES: BudgetRules = {
  shift: 0,
  due: bytes([3, 3], [1, 1, 1, 0, 1, 1, 0, 1, 0]),
  facts: { budget: [0.5, 0.25] },
  budget_of: "answer",
};

test("the sentence counts the rows and names the layer that drifts most", () => {
  assert.equal(
    counts(V, null, {}).sentence(),
    "2 of 7 evaluated rows (29 %) have a drift of V above 0.05, over all layers and steps. Layer 2 drifts most (50 %).",
  );
});

test("the sentence names no layer if no row is above the threshold", () => {
  const calm = V.map((row) => row.map((code) => (code === 250 ? 0 : code)));
  assert.ok(counts(calm, null, {}).sentence().endsWith("over all layers and steps."));
});

test("the sentence says if only rows in the answer count", () => {
  const found = counts(V, null, { answer: true });
  assert.equal(found.where, " in the answer");
  assert.match(found.sentence(), /^1 of 2 evaluated rows in the answer \(50 %\) have a drift/);
});

test("the sentence says if no row was evaluated", () => {
  const blank = V.map((row) => row.map(() => __));
  assert.equal(counts(blank, null, {}).sentence(), "No row was evaluated twice.");
});

test("the sentence speaks of the recorded rows alone if others were not recorded", () => {
  const narrowed = true;
  assert.ok(
    counts(V, null, { narrowed }).sentence().includes("over all recorded layers and steps."),
  );
  const blank = V.map((row) => row.map(() => __));
  assert.equal(
    counts(blank, null, { narrowed }).sentence(),
    "No recorded row was evaluated twice.",
  );
});

test("a quantity whose drift was not recorded may have been evaluated", () => {
  const blank = V.map((row) => row.map(() => __));
  const quantities = ["k", "q0"];
  assert.equal(
    counts(blank, null, { quantities }).sentence(),
    "No recorded row was evaluated twice.",
  );
  assert.ok(isWhole({ narrowed: false, quantities }, "k"));
  assert.ok(isWhole({ narrowed: false }, "v")); // an older replay file
  assert.ok(!isWhole({ narrowed: true, quantities }, "k"));
});

test("rows of the answer begin earlier if a row predicts the next token", () => {
  assert.equal(counts(V, null, { answer: true }).from, 2);
  assert.equal(counts(V, { ...RULES, shift: 1 }, { answer: true }).from, 1);
});

function recomputed(rules: BudgetRules | null, choice: { sight?: number[] }): Recomputed {
  const found = counts(V, rules, choice).recomputed();
  assert.ok(found);
  return found;
}

test("without a budget, the shares of a layer are of all steps after the first", () => {
  const { name, layers, steps } = recomputed(null, {});
  assert.equal(name, "recomputed after step 1");
  assert.deepEqual(layers, [(1 + 0.25) / 2, 0.25]);
  assert.deepEqual(steps, [1, (1 + 0.25) / 2, 0.25]);
});

test("shares are of the rows that a step attends to", () => {
  const { steps } = recomputed(null, { sight: [8, 4, 4] });
  assert.deepEqual(steps, [0.5, (1 + 0.25) / 2, 0.25]);
});

test("a step that attends to no row of the choice has no share", () => {
  const found = counts(V, null, { answer: true, sight: [4, 2, 4] }).recomputed();
  assert.deepEqual(
    [found?.layers, found?.steps],
    [
      [0.5, 0.5],
      [1, null, 0.5],
    ],
  );
});

test("with a budget, the shares of a layer are of the steps without a refresh", () => {
  const { name, layers } = recomputed(RULES, {});
  assert.equal(name, "recomputed between refreshes");
  assert.deepEqual(layers, [0.25, 0.25]);
});

test("no plan says which rows computed their query", () => {
  // A drift says it of rows that were recorded and computed before only: of none in the first step.
  assert.equal(counts(V, null, { quantity: "q0" }).recomputed(), null);
});

test("the budget needs no hint for the quantities and rows that it is of", () => {
  assert.equal(counts(V, RULES, { quantity: "attn", answer: true }).budget()?.hint, "");
  assert.match(counts(V, RULES, { quantity: "attn" }).budget()?.hint ?? "", /^ The budget applies/);
  assert.match(counts(V, RULES, { answer: true }).budget()?.hint ?? "", /^ The budget applies/);
});

test("a budget for another number of layers is not shown", () => {
  assert.equal(counts(V, { ...RULES, facts: { budget: [0.5] } }, {}).budget(), null);
});

test("the slider's exponents are thresholds of two digits", () => {
  assert.deepEqual([-1.3, -4, 0].map(limitOf), [0.05, 0.0001, 1]);
});

test("a chart names the rows that it shows", () => {
  assert.equal(rowsShown(true, true, ""), "drifted, budgeted and recomputed rows");
  assert.equal(rowsShown(false, true, ""), "drifted and recomputed rows");
  assert.equal(rowsShown(false, false, " in the answer"), "drifted rows in the answer");
});

test("a run of one step has no share of recomputed rows by layer, which 0 % would be wrong for", () => {
  const one = {
    seen: ints([1, 2], [0, 0]),
    above: ints([1, 2], [0, 0]),
    done: ints([1, 2, 4], Array<number>(8).fill(4)),
  };
  const frame = { layers: 2, steps: 1, prompt: 2, sight: ints([1], [4]) } as unknown as Frame;
  const choice = { quantity: "v", limit: 0.05, answer: false };
  const found = new DriftCounts(one, frame, null, choice).recomputed();
  assert.deepEqual([found?.layers, found?.steps], [null, [1]]);
});
