import assert from "node:assert/strict";
import test from "node:test";
import { termParts } from "../src/page/glossary.ts";

test("the first occurrence of a term is linked, in any form", () => {
  assert.deepEqual(termParts("Steps and steps"), [
    "",
    { term: "step", text: "Steps" },
    " and steps",
  ]);
});

test("a term that is linked already is not linked again", () => {
  const seen = new Set(["step"]);
  assert.deepEqual(termParts("a step in a lane", seen), [
    "a step in a ",
    { term: "lane", text: "lane" },
    "",
  ]);
  assert.deepEqual([...seen], ["step", "lane"]);
});

test("a term within another word is not linked", () => {
  assert.deepEqual(termParts("footstep step-by"), ["footstep step-by"]);
});
