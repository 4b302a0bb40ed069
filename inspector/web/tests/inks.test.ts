import assert from "node:assert/strict";
import test from "node:test";
import { PAPER, retinted, type Inks } from "../src/figures/inks.ts";

test("of inks that one theme draws in one colour the first gives the other theme's", () => {
  const forced: Inks = { ...PAPER, ink: "CanvasText", a: "CanvasText", differs: "CanvasText" };
  const colour = retinted(forced, PAPER);
  assert.equal(colour("CanvasText"), PAPER.ink);
  assert.equal(colour("red"), "red");
});
