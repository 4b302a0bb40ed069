/** The view "What if" while its data is on its way. */
import assert from "node:assert/strict";
import test from "node:test";
import type { Panel } from "../src/inspect/panel.ts";
import { whatIf } from "../src/inspect/views/what_if.ts";

/** Draw the view of lane B of a run whose form has the settings of `filled`; what goes. */
function drawn(filled: string): { hidden: boolean[]; removed: boolean } {
  let removed = false;
  const block = (): { dataset: { run?: string }; hidden: boolean } => ({
    dataset: {},
    hidden: false,
  });
  const branch = { remove: () => (removed = true) };
  const reset = { setAttribute: () => undefined };
  const keys = {
    ...block(),
    querySelector: (name: string) => (name.includes("branch") ? branch : reset),
  };
  const blocks = { form: block(), fault: block(), result: block(), keys };
  blocks.form.dataset.run = filled;
  const panel = {
    frame: { unmasker: "" },
    cursor: { lane: "b" },
    spot: { step: 3, layer: 0 },
    inspector: { key: "run", offline: () => false },
    choice: () => "",
    block: (name: keyof typeof blocks) => blocks[name],
    slice: () => undefined,
  } as unknown as Panel;
  whatIf.draw(panel, undefined);
  return { hidden: [blocks.form.hidden, blocks.result.hidden], removed };
}

test("while another step is read, the form and the result of the last one stay", () => {
  assert.deepEqual(drawn("brun"), { hidden: [false, false], removed: false });
});

test("while another lane or run is read, nothing of the last one can be pressed", () => {
  for (const filled of ["arun", "banother"])
    assert.deepEqual(drawn(filled), { hidden: [true, true], removed: true });
});
