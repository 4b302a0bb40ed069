import assert from "node:assert/strict";
import test from "node:test";
import { Panel } from "../src/inspect/panel.ts";
import type { Query, Slice } from "../src/inspect/slice.ts";
import type { Missing } from "../src/inspect/view.ts";
import { drawBound } from "../src/inspect/views/error.ts";
import { floats } from "./inspected.ts";

type Answer = Slice | Missing | undefined;

const BOUND: Slice = {
  arrays: { proxy: floats([1, 2], [0.25, 0.5]), true: floats([1], [0.125]) },
  facts: {},
};

/** What the figure of DARE's bound shows of two layers: a reason to wait, null, or a readout. */
function shown(...layers: Answer[]): unknown[] {
  const said: unknown[] = [];
  const figure = {
    root: {},
    wait: (reason: string | null) => said.push(reason),
    show: ({ words }: { words: (x: number) => string }) => said.push(words(2)),
  };
  const panel = Object.create(Panel.prototype, {
    figure: { value: () => figure },
    block: { value: () => ({ textContent: "" }) },
    cursor: { value: { lane: "b" } },
    frame: { value: { layers: 2 } },
    spot: { value: { layer: 0 } },
    slice: { value: ({ layer }: Query) => layers[Number(layer)] },
  }) as Panel;
  const scene = { panel, data: { bounded: true }, frame: { layers: 2 }, probe: 0, layer: 0 };
  drawBound({ ...scene, shown: "Step 1" } as unknown as Parameters<typeof drawBound>[0]);
  return said;
}

test("the bound of all layers is drawn together, and one that is missing is told", () => {
  assert.deepEqual(shown(BOUND, undefined), [null]);
  assert.deepEqual(shown(BOUND, { missing: "It is gone." }), ["It is gone."]);
  assert.deepEqual(shown(BOUND, BOUND), ["Layer 2: proxy 0.25 to 0.50, true error 0.13"]);
});
