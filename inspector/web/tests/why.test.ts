import assert from "node:assert/strict";
import test from "node:test";
import { NO_DATA } from "../src/inspect/codes.ts";
import type { Documents } from "../src/inspect/replay_slices/documents.ts";
import type { RowCell } from "../src/inspect/planned_row.ts";
import type { NdArray } from "../src/inspect/arrays.ts";
import {
  driftOfRows,
  planOfStep,
  tokenRows,
  type PlanBits,
  type TokenRows,
} from "../src/inspect/plans.ts";
import { Why, type Reason, type Rules } from "../src/inspect/why.ts";
import { bytes, cutPart, frame, planOf } from "./inspected.ts";

const [K, FFN] = [0, 3];
/** Step 1 computes all rows, step 2 position 2 but not its K, step 3 the answer. */
const PLAN = planOf((step, _, site, x) => {
  if (step === 0) return true;
  return step === 1 ? x === 2 && site !== K : x >= 2;
});

type Drifts = Documents["drift"];
const NO_DRIFTS: Drifts = { quantities: ["k", "v"], drift: bytes([0, 0, 0, 0], []) };

/** Drifts of K and V, of which only the V of position 2 in step 2, layer 1, is known. */
function driftOf(code: number): Drifts {
  const drift = bytes([3, 2, 2, 6], new Array<number>(72).fill(NO_DATA));
  drift.values[1 * 24 + 1 * 6 + 2] = code;
  return { quantities: ["k", "v"], drift };
}

function rules(changes: Partial<Rules> = {}): Rules {
  return {
    parts: ["dual"],
    reasons: [[]],
    shift: 0,
    due: bytes([3, 3], [1, 1, 1, 0, 0, 0, 0, 1, 0]),
    facts: { budget: [0.25, 0] },
    budget_of: "all",
    ...changes,
  };
}

function why(cell: Partial<RowCell>, changes: Partial<Rules> = {}, drift: Drifts = NO_DRIFTS): Why {
  const place = { step: 1, layer: 0, position: 2, ...cell };
  const documents = { frame: frame(), plan: PLAN, drift };
  const facts = {
    token: cutPart<TokenRows>(documents, tokenRows(place.position)),
    plan: cutPart<PlanBits>(documents, planOfStep(place.step)),
    drifts: (quantity: string): NdArray | null => {
      if (!drift.drift.shape[0] || !drift.quantities.includes(quantity)) return null;
      return cutPart<{ cells: NdArray }>(documents, driftOfRows(quantity, place.step)).cells;
    },
  };
  return new Why(frame(), rules(changes), facts, place);
}

function sentence(cell: Partial<RowCell>, ...reasons: Reason[][]): string {
  const parts = reasons.length > 1 ? ["dual", "dare_kv"] : ["dual"];
  return why(cell, { reasons, parts }).sentence();
}

test("conditions on step and layer hold where they should", () => {
  assert.equal(why({ step: 0 }).holds("first_step"), true);
  assert.equal(why({ step: 1 }).holds("first_step"), false);
  assert.equal(why({ layer: 1 }).holds("first_layer"), false);
  assert.equal(why({ step: 0 }).holds("full"), true);
  assert.equal(why({ step: 1 }).holds("full"), false);
  assert.deepEqual(
    [0, 1, 2].map((step) => why({ step }).holds("new_block")),
    [true, false, true],
  );
});

test("a row is in the prompt, the block or the rest", () => {
  const region = (position: number, shift = 0): string =>
    ["prompt", "block", "rest", "answer", "after_block"]
      .filter((name) => why({ position }, { shift }).holds(name))
      .join(" ");
  assert.equal(region(1), "prompt");
  assert.equal(region(2), "block answer");
  assert.equal(region(4), "rest answer after_block");
  assert.equal(region(1, 1), "block answer");
});

test("a block that is over belongs to the rest, but is not after the block", () => {
  const row = why({ step: 2, position: 2 });
  assert.equal(row.holds("rest"), true);
  assert.equal(row.holds("after_block"), false);
});

test("a refresh is that of the row's region, or of the one named", () => {
  assert.equal(why({ step: 2, position: 4 }).holds("refresh"), true);
  assert.equal(why({ step: 2, position: 0 }).holds("refresh"), false);
  assert.equal(why({ step: 2, position: 0 }).holds("refresh:block"), true);
  assert.equal(why({ step: 2, position: 0 }).holds("refresh:rest"), false);
});

test("recomputed is about all sites or one, reused about all", () => {
  assert.equal(why({}).holds("recomputed"), false);
  assert.equal(why({}).holds("recomputed:ffn"), true);
  assert.equal(why({}).holds("recomputed:k"), false);
  assert.equal(why({}).holds("reused"), false);
  assert.equal(why({ position: 1 }).holds("reused"), true);
});

test("every row of a step is computed if all sites of all layers have the same rows", () => {
  assert.deepEqual(
    [0, 1, 2].map((step) => why({ step }).holds("every_row")),
    [true, false, true],
  );
});

test("a row is recomputed again only in a later step", () => {
  assert.equal(why({ step: 1 }).holds("again"), true);
  assert.equal(why({ step: 2 }).holds("again"), false);
});

test("a fact is lacking only where it is known and not above 0", () => {
  assert.equal(why({ layer: 0 }).holds("no:budget"), false);
  assert.equal(why({ layer: 1 }).holds("no:budget"), true);
  assert.equal(why({}).holds("no:threshold"), false);
});

test("an exclamation mark negates a condition", () => {
  assert.equal(why({}).holds("!recomputed:ffn"), false);
  assert.equal(why({}).holds("!reused"), true);
});

test("an unknown condition does not hold, an unknown placeholder is empty", () => {
  assert.equal(why({}).holds("constructor"), false);
  assert.equal(why({}).value("constructor"), "");
});

test("placeholders count from 1", () => {
  assert.equal(why({ layer: 1 }).value("layer"), "2");
  assert.equal(why({ step: 2 }).value("block"), "2");
});

test("shares count the rows of a site or of any site, of all or of the answer", () => {
  assert.equal(why({}).value("rows"), "1 row");
  assert.equal(why({ step: 2 }).value("share"), "4 of 6 rows (67 %)");
  assert.equal(why({}).value("share:k"), "0 of 6 rows (0 %)");
  assert.equal(why({}).value("share:ffn:answer"), "1 of 4 rows (25 %)");
});

test("the last and the next step that compute or refresh the row", () => {
  assert.equal(why({}).value("times"), "last at step 1, next at step 3");
  assert.equal(
    why({ step: 0, position: 1 }).value("times"),
    "not computed before, not again in this run",
  );
  assert.equal(why({}).value("refreshes"), "last at step 1, next at step 3");
  assert.equal(why({}).value("refreshes:prompt"), "last at step 1, not again in this run");
});

test("a drift is empty without drifts, for an unknown quantity and where nothing was evaluated", () => {
  assert.equal(why({}).value("drift:v"), "");
  assert.equal(why({}, {}, driftOf(254)).value("drift:q0"), "");
  assert.equal(why({}, {}, driftOf(NO_DATA)).value("drift:v"), "");
});

test("a drift is a number, or below the smallest one shown", () => {
  assert.equal(why({}, {}, driftOf(254)).value("drift:v"), "2.0");
  assert.equal(why({}, {}, driftOf(0)).value("drift:v"), "less than 0.0001");
});

/** Drifts of V of the four rows of the answer in step 2, layer 1. */
function answerDrift(...codes: number[]): Drifts {
  const drift = bytes([3, 2, 2, 6], new Array<number>(72).fill(NO_DATA));
  codes.forEach((code, i) => (drift.values[1 * 24 + 1 * 6 + 2 + i] = code));
  return { quantities: ["k", "v"], drift };
}

test("a row's rank is that of its drift in the answer; equal drifts share theirs", () => {
  const drift = answerDrift(3, 9, 3, 1);
  assert.equal(why({ position: 3 }, {}, drift).value("rank:v"), "rank 1 of 4");
  assert.equal(why({ position: 2 }, {}, drift).value("rank:v"), "rank 2 to 3 of 4");
});

test("a rank is empty if a drift is unknown, or the row is not in the answer", () => {
  assert.equal(why({}, {}, answerDrift(3, 9, NO_DATA, 1)).value("rank:v"), "");
  assert.equal(why({}, {}, answerDrift(3, 9, 3, 1)).value("rank:k"), "");
  assert.equal(why({ position: 1 }, {}, answerDrift(3, 9, 3, 1)).value("rank:v"), "");
  assert.equal(why({}).value("rank:v"), "");
});

test("the cut gives a row's drift, its rank and the least drift of the recomputed rows", () => {
  const drift = answerDrift(254, 9, 1, 0);
  assert.equal(
    why({ position: 4 }, {}, drift).value("cut:v:ffn"),
    "drift 0.00003, rank 3 of 4; the cut-off for 1 row was 2.0",
  );
  assert.match(why({ position: 5 }, {}, drift).value("cut:v:ffn"), /^drift less than 0.00002,/);
});

test("the cut is empty where the rows taken are not those of the largest drift", () => {
  assert.equal(why({}, {}, answerDrift(3, 9, 1, 0)).value("cut:v:ffn"), "");
  assert.equal(why({ step: 0 }, {}, answerDrift(9, 3, 1, 0)).value("cut:v:ffn"), "");
});

test("equal drifts may be taken or not", () => {
  assert.match(why({}, {}, answerDrift(3, 3, 1, 0)).value("cut:v:ffn"), /rank 1 to 2 of 4/);
});

test("a fact is empty unless it is above 0", () => {
  assert.equal(why({}).value("fact:budget"), "0.25");
  assert.equal(why({}).value("percent:budget"), "25 %");
  assert.equal(why({}, { facts: { budget: [0.9996] } }).value("percent:budget"), "99.9 %");
  assert.equal(why({ layer: 1 }).value("percent:budget"), "");
});

test("a part in brackets is left out if a placeholder in it is empty", () => {
  const text = "the row[ drifted by {drift:v}], budget[ {percent:budget}] of layer {layer}";
  assert.equal(why({}).fill(text), "the row, budget 25 % of layer 1");
  assert.equal(why({ layer: 1 }).fill(text), "the row, budget of layer 2");
});

test("the head says what was recomputed", () => {
  assert.equal(sentence({ step: 0 }, []), "Recomputed.");
  assert.equal(sentence({ position: 1 }, []), "Not recomputed.");
  assert.equal(sentence({}, []), "K not recomputed.");
});

test("the head lists several sites that were not recomputed", () => {
  const documents = {
    frame: frame(),
    plan: planOf((_, __, site) => site === FFN),
    drift: NO_DRIFTS,
  };
  const facts = {
    token: cutPart<TokenRows>(documents, tokenRows(2)),
    plan: cutPart<PlanBits>(documents, planOfStep(1)),
    drifts: () => null,
  };
  const row = new Why(frame(), rules(), facts, { step: 1, layer: 0, position: 2 });
  assert.equal(row.sentence(), "K, V and attention not recomputed.");
});

test("the reason is the first of which all conditions hold", () => {
  const reasons = [
    { when: "recomputed prompt", text: "no" },
    { when: "recomputed  full", text: "the step {layer} is full" },
    { when: "", text: "the last" },
  ];
  assert.equal(sentence({ step: 0 }, reasons), "Recomputed: the step 1 is full.");
  assert.equal(sentence({ position: 1 }, reasons), "Not recomputed: the last.");
});

test("of two caches the second gives the reason for a row that is not wholly reused", () => {
  const [first, second] = [[{ when: "", text: "window" }], [{ when: "", text: "layers" }]];
  assert.equal(sentence({ position: 1 }, first, second), "Not recomputed: window.");
  assert.equal(sentence({}, first, second), "K not recomputed: layers.");
});

test("the second cache on none gives all reasons", () => {
  const reasons = [[{ when: "", text: "none" }], [{ when: "", text: "layers" }]];
  const row = why({ position: 1 }, { parts: ["none", "dare_kv"], reasons });
  assert.equal(row.sentence(), "Not recomputed: layers.");
});
