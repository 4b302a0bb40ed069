import assert from "node:assert/strict";
import test from "node:test";
import { makePoints, scatterTitle } from "../src/inspect/acceptance.ts";
import type { Guided } from "../src/inspect/guided.ts";
import { guiderWords } from "../src/inspect/views/guider.ts";
import { bytes, floats, ints } from "./inspected.ts";

test("an end of text that the fallback committed is no accepted token", () => {
  const names = ["accepted", "stop"] as const;
  const drafts = {
    draft_step: ints([3], [0, 0, 1]),
    draft_position: ints([3], [8, 9, 10]),
    draft_p_f: floats([3], [0.9, 0.8, 0.7]),
    draft_p_g: floats([3], [0.6, 0.5, 0.1]),
    verdict: bytes([3], [0, 1, 1]),
    every: 1,
  };
  const points = makePoints({ names: [...names], accepted: ints([2], [2, 0]) }, drafts);
  assert.deepEqual(
    points.map(({ name, rows }) => [name, rows]),
    [
      ["accepted", [0, 1]],
      ["agreed, after the mismatch", []],
      ["not agreed", [2]],
    ],
  );
});

test("the title of the scatter says which steps it shows", () => {
  assert.match(scatterTitle(1), /^Probability of each drafted token: /);
  assert.match(scatterTitle(3), /^Probability of each token .* in one drafting step out of 3: /);
});

test("tokens per step are of the steps that draft, and not of commit calls", () => {
  const data = {
    about: { name: "small", parameters: null, shared: true },
    rule: { guider: "small", rule: "top1", k: 2, tau: 0.5, fallback: "dlm" },
    numbers: { accepted: 5, drafted: 12, tokens: 6 },
    histogram: ints([4], [1, 0, 1, 1]),
  } as unknown as Guided;
  assert.match(
    guiderWords(data, 5, null),
    /accepted in 3 steps, 2 tokens per step including the fallback's\. 2 other steps drafted nothing\.$/,
  );
  assert.match(guiderWords(data, 3, null), /fallback's\.$/);
});
