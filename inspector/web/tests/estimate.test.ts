import assert from "node:assert/strict";
import { test } from "node:test";
import { typedTokens } from "../src/page/estimate.ts";

test("an empty or unreadable field means the default", () => {
  assert.equal(typedTokens(""), null);
  assert.equal(typedTokens("  "), null);
  assert.equal(typedTokens("many"), null);
});

test("a typed number is taken as it is, so that the server names what is wrong with it", () => {
  assert.equal(typedTokens("2.5"), 2.5);
  assert.equal(typedTokens("0"), 0);
});
