/** The view “Similarity”, on a page that draws nothing. */
import assert from "node:assert/strict";
import test from "node:test";
import type { FigureSpec, HeatSpec } from "../src/figures/spec.ts";
import { Cursor } from "../src/inspect/cursor.ts";
import { Panel } from "../src/inspect/panel.ts";
import type { Query, Slice } from "../src/inspect/slice.ts";
import type { SimilarityData } from "../src/inspect/step_pairs.ts";
import type { Missing } from "../src/inspect/view.ts";
import { similarity } from "../src/inspect/views/similarity.ts";
import type { LaneName } from "../src/race/messages.ts";
import { bytes, floats, frame, ints } from "./inspected.ts";

const DATA: SimilarityData = {
  steps: ints([3], [0, 1, 2]),
  groups: ints([1, 2], [0, 6]),
  change: floats([2, 2, 1], [0.1, 0.1, 0.1, 0.1]),
};
const AXIS = { from: 0, to: 3, factor: 1 };
const SLICES: Record<string, Slice> = {
  facts: { arrays: { ...DATA }, facts: {} },
  map: {
    arrays: { cells: bytes([3, 3], [0, 1, 2, 1, 0, 1, 2, 1, 0]) },
    facts: { rows: AXIS, columns: AXIS, by: "mean" },
  },
  row: { arrays: { codes: bytes([3, 1], [0, 1, 2]) }, facts: {} },
};

/** What is drawn: the cursor, and for each figure its spec or what it says instead. */
interface Page {
  cursor: Cursor;
  shown: Map<string, FigureSpec>;
  said: Map<string, string | null>;
  /** The lanes and layers that were asked for ahead. */
  ahead: (readonly [LaneName, Query["layer"]])[];
}

/** Draw one lane or both; `gone` tells which parts of which lanes are missing. */
function page(lanes: "one" | "both", gone: (lane: LaneName, part: string) => boolean): Page {
  const [shown, said] = [new Map<string, FigureSpec>(), new Map<string, string | null>()];
  function figure(this: { only: LaneName | null }, plainName: string): object {
    const name = this.only ? `${plainName}-${this.only}` : plainName;
    return {
      root: { classList: { add: () => undefined } },
      sight: () => ({ cells: null, wide: 100, high: 100 }),
      show: (spec: FigureSpec) => shown.set(name, spec),
      wait: (reason: string | null) => said.set(name, reason),
    };
  }
  const get = (name: LaneName, { part = "" }: Query): Slice | Missing =>
    gone(name, part) ? { missing: "It is gone." } : SLICES[part];
  const nothing = (): void => undefined;
  const ahead: Page["ahead"] = [];
  const cursor = new Cursor(() => draw());
  const lane = { before: 0, stepNumber: (row: number) => row + 1 };
  const store = { lanes: { a: lane, b: lane }, summary: { apart: "" } };
  const frames = { a: frame(), b: frame() };
  const slices = { get, ahead: (name: LaneName, { layer }: Query) => ahead.push([name, layer]) };
  const inspector = { key: "run/1", cursor, store, frames, slices, draw: nothing };
  const choices: Record<string, string> = { kind: "v", scale: "log", group: "0", lanes };
  const made: unknown = Object.assign(Object.create(Panel.prototype) as object, {
    ...{ name: "similarity", inspector, only: null, sides: {}, lacking: 0, figure },
    ...{ place: nothing, showFigures: nothing, choices: nothing, block: () => ({}) },
    choice: (name: string) => choices[name],
  });
  const draw = (): void => similarity.draw(made as Panel, DATA);
  draw();
  return { cursor, shown, said, ahead };
}

test("the difference says why the matrix of a lane is missing", () => {
  const { said } = page("both", (lane, part) => lane === "b" && part === "map");
  assert.equal(said.get("similarity-steps-b"), "It is gone.");
  assert.equal(said.get("similarity-steps-difference"), "It is gone.");
});

test("the layer beside is asked for ahead once for each lane", () => {
  const { ahead } = page("both", () => false);
  assert.deepEqual(ahead, [
    ["a", 1],
    ["b", 1],
  ]);
});

test("a chosen cell comes back after another one is pointed at, and not after another step", () => {
  const { cursor, shown } = page("one", () => false);
  const matrix = (): HeatSpec => shown.get("similarity-steps") as HeatSpec;
  matrix().pick?.(0, 2, true);
  assert.deepEqual(matrix().at, { x: 0, y: 2 });
  matrix().pick?.(1, 2, false);
  assert.deepEqual(matrix().at, { x: 1, y: 2 });
  cursor.hover(null);
  assert.deepEqual(matrix().at, { x: 0, y: 2 });
  cursor.move({ step: 1 });
  cursor.move({ step: 2 });
  assert.deepEqual(matrix().at, { x: 2, y: 2 });
});
