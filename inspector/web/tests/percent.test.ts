import assert from "node:assert/strict";
import test from "node:test";
import { percent } from "../src/base/format.ts";

test("a percentage has fewer digits the larger it is", () => {
  const found = [0, 0.00034, 0.0123, 0.256, 1].map(percent);
  assert.deepEqual(found, ["0 %", "0.03 %", "1.2 %", "26 %", "100 %"]);
});

test("an unknown share is a dash", () => {
  assert.equal(percent(null), "–");
});
