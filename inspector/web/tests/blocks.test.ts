import assert from "node:assert/strict";
import { test } from "node:test";
import { atRest, restWords, type BlockCounts } from "../src/race/blocks.ts";
import { hiddenTokens } from "../src/race/prompt_and_answer.ts";
import type { Lane } from "../src/race/lane.ts";
import { raceOf, steps } from "./races.ts";

const SETTLED: BlockCounts = {
  from: 2,
  places: 2,
  revealed: 2,
  fresh: 0,
  differing: 0,
  active: false,
};

/** A lane with four tokens, w0 to w3. */
function lane(): Lane {
  const { a } = raceOf(steps([0, 1], [2, 3]), []).lanes;
  for (const place of [0, 1, 2, 3]) a.pieces.set(10 + place, ` w${place}`);
  return a;
}

test("a block is at rest when it is settled or untouched", () => {
  assert.ok(atRest(SETTLED));
  assert.ok(atRest({ ...SETTLED, revealed: 0 }));
});

test("a block in which something happens is not at rest", () => {
  assert.ok(!atRest({ ...SETTLED, revealed: 1 }));
  assert.ok(!atRest({ ...SETTLED, fresh: 1 }));
  assert.ok(!atRest({ ...SETTLED, active: true }));
});

test("a block at rest says its text, or its masks", () => {
  assert.equal(restWords(lane(), SETTLED, 4), "w2 w3");
  assert.equal(restWords(lane(), { ...SETTLED, revealed: 0 }, 4), "2 masks");
});

test("a block's text stops at the end of the answer", () => {
  assert.equal(restWords(lane(), SETTLED, 3), "w2");
  assert.equal(restWords(lane(), SETTLED, 2), "2 tokens after the end of the text");
});

test("a block says how many of its tokens differ", () => {
  assert.equal(restWords(lane(), { ...SETTLED, differing: 1 }, 4), "w2 w3 · 1 ≠");
});

test("the middle of a long prompt is folded, unless it would hide only a few tokens", () => {
  assert.deepEqual([100, 384, 448, 449, 2048].map(hiddenTokens), [0, 0, 0, 65, 1664]);
});
