import assert from "node:assert/strict";
import test from "node:test";
import { makePoints } from "../src/inspect/acceptance.ts";
import { bytes, floats, ints } from "./inspected.ts";

test("an end of text that the fallback committed is no accepted token", () => {
  const names = ["accepted", "stop"] as const;
  const drafts = {
    draft_step: ints([3], [0, 0, 1]),
    draft_position: ints([3], [8, 9, 10]),
    draft_p_f: floats([3], [0.9, 0.8, 0.7]),
    draft_p_g: floats([3], [0.6, 0.5, 0.1]),
    verdict: bytes([3], [0, 1, 1]),
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
