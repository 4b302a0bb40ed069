import assert from "node:assert/strict";
import test from "node:test";
import { Panel } from "../src/inspect/panel.ts";
import { candidates, type CandidateData } from "../src/inspect/views/candidates.ts";
import { bytes, floats, frame, ints } from "./inspected.ts";

const DATA: CandidateData = {
  position: ints([1], [3]),
  ids: ints([1, 1], [7]),
  probs: floats([1, 1], [0.5]),
  chosen: bytes([1], [0]),
  pieces: {},
};

test("the list of a run is not shown while that of another run is read", () => {
  const node = (): object => ({ dataset: {}, append: () => undefined, addEventListener: () => 0 });
  Object.assign(globalThis, { document: { createElement: node } });
  const box = { dataset: {}, hidden: false, replaceChildren: () => undefined };
  const inspector = { key: "first", store: { busy: false } };
  let data: CandidateData | null = DATA;
  const panel = Object.create(Panel.prototype, {
    frame: { value: { ...frame(), causal: true } },
    lane: { value: { stepNumber: (step: number) => step + 1 } },
    cursor: { value: { lane: "b", step: 0, layer: 0, position: null } },
    inspector: { value: inspector },
    map: { value: () => null },
    block: { value: () => box },
    part: { value: () => data },
  }) as Panel;
  const shown = (): boolean => {
    candidates.draw(panel, undefined);
    return !box.hidden;
  };
  assert.ok(shown());
  data = null;
  assert.ok(shown(), "the list of another step stays while it is read");
  inspector.key = "second";
  assert.ok(!shown());
  data = DATA;
  assert.ok(shown());
});
