import assert from "node:assert/strict";
import test from "node:test";
import type { Panel } from "../src/inspect/panel.ts";
import { bothSides } from "../src/inspect/sides.ts";
import type { Frame } from "../src/inspect/view.ts";
import {
  drawSimilarityDifference,
  type SimilarityPair,
} from "../src/inspect/views/similarity_sides.ts";
import { frame } from "./inspected.ts";

/** Whether both lanes are shown beside each other, and the note. */
function sides(a: Partial<Frame>, b: Partial<Frame>, apart = ""): [boolean, string] {
  const note = { hidden: true, textContent: "" };
  const panel = {
    name: "drift",
    choice: () => "both",
    block: () => note,
    inspector: {
      frames: { a: { ...frame(), ...a }, b: { ...frame(), ...b } },
      store: { summary: { apart } },
    },
  } as unknown as Panel;
  return [bothSides(panel), note.hidden ? "" : note.textContent];
}

test("both lanes are shown if both were recorded and can be compared", () => {
  assert.deepEqual(sides({}, {}), [true, ""]);
  assert.match(sides({}, { level: "steps" })[1], /^Only this lane was recorded/);
  assert.deepEqual(sides({}, {}, "Other prompts.")[1], "Other prompts. This lane is shown alone.");
});

test("a lane that ended before its first step is not said to be without a recording", () => {
  const alone = "Lane B took no step, so this lane is shown alone.";
  for (const level of ["layers", "off"] as const)
    // the second one as such a trace is read
    assert.deepEqual(sides({}, { steps: 0, level }), [false, alone]);
});

test("lanes whose models have other numbers of layers are not compared layer by layer", () => {
  const [both, note] = sides({ layers: 8 }, { layers: 4 });
  assert.equal(both, false);
  assert.match(note, /different numbers of layers/);
});

test("the difference of lanes without a compared step in common says so", () => {
  const said: string[] = [];
  const root = { classList: { add: () => undefined } };
  const figure = { root, wait: (why: string) => said.push(why) };
  const store = { lanes: { a: { before: 0 }, b: { before: 0 } } };
  const panel = { bothFigure: () => figure, inspector: { store } };
  const pair = { steps: { a: [0], b: [1] }, maps: {} } as unknown as SimilarityPair;
  drawSimilarityDifference(panel as unknown as Panel, pair);
  assert.deepEqual(said, ["No step was compared in both lanes."]);
});
