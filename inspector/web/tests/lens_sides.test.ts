/** The logit lens while its data is on its way, or if it is missing. */
import assert from "node:assert/strict";
import test from "node:test";
import type { HeatSpec } from "../src/figures/spec.ts";
import type { Panel } from "../src/inspect/panel.ts";
import { lens } from "../src/inspect/views/lens.ts";
import { drawPass, type Scene } from "../src/inspect/views/lens_pass.ts";
import { drawLensSides } from "../src/inspect/views/lens_sides.ts";
import { frame, ints } from "./inspected.ts";

const none = (): undefined => undefined;
const key = (): object => ({ dataset: {}, setAttribute: none, addEventListener: none });
Object.assign(globalThis, { document: { createElement: key } });

/** The slices of a run that was probed in its first step. */
const PARTS = { facts: { step: ints([1], [0]), position: ints([1], [2]) }, layers: {}, ids: {} };
type Part = keyof typeof PARTS;

const SIDES = ["lens-run-a", "lens-run-b"];
const BOTH = ["lens-lanes", "lens-turns"];

/** A panel without the slices of a part, its probed steps' keys, and the figures that say so. */
function without(missing: Part): { panel: Panel; keys: { hidden: boolean }; said: Set<string> } {
  const said = new Set<string>();
  const keys = {
    dataset: {},
    hidden: false,
    textContent: "",
    setAttribute: none,
    replaceChildren: none,
    querySelectorAll: () => [],
  };
  const sideOf = (lane: string, end: string): object => ({
    frame: frame(),
    cursor: { lane, position: null },
    choice: () => "best",
    number: (step: number) => step + 1,
    figure: (name: string) => name + end,
    map: () => null,
    part: () => null,
    partOrWords: () => "reading …",
    parts: (figures: string | string[], queries: Record<string, { part: Part }>) => {
      const [[name, { part }]] = Object.entries(queries);
      if (part !== missing) return { [name]: PARTS[part] };
      for (const figure of [figures].flat()) said.add(figure);
      return null;
    },
  });
  const lane = { before: 0, start: { model: "tiny" } };
  const store = { lanes: { a: lane, b: lane }, summary: null };
  const panel = Object.assign(sideOf("a", ""), {
    inspector: { key: "run", store, frames: {} },
    lane,
    spot: { step: 0, layer: 0 },
    block: () => keys,
    place: none,
    showFigures: none,
    bothFigure: (name: string) => name,
    of: (name: string) => sideOf(name, "-" + name),
  });
  return { panel: panel as unknown as Panel, keys, said };
}

test("the keys of another run's probed steps are hidden while those of this run are read", () => {
  const { panel, keys } = without("facts");
  drawLensSides(panel);
  assert.equal(keys.hidden, true);
});

test("every figure of both lanes says what of its data is not there", () => {
  const found = (["facts", "layers", "ids"] as const).map((missing) => {
    const { panel, said } = without(missing);
    drawLensSides(panel);
    return [...said].sort();
  });
  const all = [...BOTH, ...SIDES].sort();
  assert.deepEqual(found, [all, all, BOTH]);
});

test("every figure of a lane says that the layers of a probed step are not there", () => {
  const { panel, said } = without("layers");
  lens.draw(panel, PARTS.facts);
  assert.deepEqual([...said], ["lens-run", "lens-exact", "lens-difference", "lens-layers"]);
});

test("a token of a layer that is missing says why", () => {
  const maps: HeatSpec[] = [];
  const panel = Object.assign(without("ids").panel, {
    map: () => ({ at: () => 10, key: "", drawn: none }),
    answers: () => ({ name: "answer token", count: 4 }),
    figure: () => ({ show: (spec: HeatSpec) => maps.push(spec) }),
  });
  const layers = { stays: ints([2, 1], [0, 0]) };
  const tokens = { ids: null, unread: "It is gone.", places: Int32Array.from([0]) };
  const shown = { panel, data: PARTS.facts, probe: 0, step: 0, plan: null, shown: "Step 1" };
  drawPass({ ...shown, ...tokens, layers } as unknown as Scene, "run");
  const words = "Answer token 1, layer 2, step 1, the run: It is gone.";
  assert.equal(maps[0].words(0, 1), words);
});
