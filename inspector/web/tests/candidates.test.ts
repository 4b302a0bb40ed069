import assert from "node:assert/strict";
import test from "node:test";
import type { HeatSpec } from "../src/figures/spec.ts";
import { Panel } from "../src/inspect/panel.ts";
import type { Slice } from "../src/inspect/slice.ts";
import type { Missing } from "../src/inspect/view.ts";
import { candidates } from "../src/inspect/views/candidates.ts";
import { bytes, floats, frame, ints } from "./inspected.ts";

const LIST: Slice = {
  arrays: {
    position: ints([1], [3]),
    ids: ints([1, 1], [7]),
    probs: floats([1, 1], [0.5]),
    chosen: bytes([1], [0]),
  },
  facts: { pieces: {} },
};

test("the list of a step is that of this run, or says why there is none", () => {
  const node = (): object => ({ dataset: {}, append: () => undefined, addEventListener: () => 0 });
  Object.assign(globalThis, { document: { createElement: node } });
  let listed: { textContent?: string }[] = [];
  const replaceChildren = (...nodes: typeof listed): void => void (listed = nodes);
  const box = { dataset: {}, hidden: false, replaceChildren };
  const inspector = { key: "first", store: { busy: false } };
  let found: Slice | Missing | undefined = LIST;
  const maps: HeatSpec[] = [];
  const panel = Object.create(Panel.prototype, {
    frame: { value: { ...frame(), causal: true } },
    lane: { value: { stepNumber: (step: number) => step + 1 } },
    cursor: { value: { lane: "b", step: 0, layer: 0, position: null } },
    inspector: { value: inspector },
    map: { value: () => ({ key: "", drawn: () => ({}) }) },
    figure: { value: () => ({ show: (spec: HeatSpec) => maps.push(spec) }) },
    block: { value: () => box },
    slice: { value: () => found },
  }) as Panel;
  const shown = (): boolean => {
    candidates.draw(panel, undefined);
    return !box.hidden;
  };
  assert.ok(shown());
  found = undefined;
  assert.ok(shown(), "the list of another step stays while it is read");
  inspector.key = "second";
  assert.ok(!shown());
  found = LIST;
  assert.ok(shown());
  found = { missing: "It is gone." };
  assert.ok(shown());
  assert.deepEqual(
    listed.map(({ textContent }) => textContent),
    ["It is gone."],
  );
  assert.equal(maps[0].words(1, 0), "Answer token 2, step 1: It is gone.");
});
