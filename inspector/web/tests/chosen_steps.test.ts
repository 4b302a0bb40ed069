import assert from "node:assert/strict";
import test from "node:test";
import { chosenSteps } from "../src/inspect/chosen_steps.ts";

test("steps and ranges are read, in order and once each", () => {
  assert.deepEqual(chosenSteps("13, 1 20-22;13"), { steps: [0, 12, 19, 20, 21] });
  assert.deepEqual(chosenSteps("  "), { steps: [] });
});

test("what is no step is named", () => {
  for (const text of ["0", "x", "3-2", "-4", "1.5"]) {
    const found = chosenSteps(text);
    assert.ok("fault" in found && found.fault.includes(`“${text}” is no step`), text);
  }
});

test("more steps than the server probes are refused", () => {
  assert.deepEqual(chosenSteps("1-64"), { steps: Array.from({ length: 64 }, (_, i) => i) });
  for (const text of ["1-65", "1-64 70", "1-999999"])
    assert.deepEqual(chosenSteps(text), { fault: "At most 64 steps can be probed." });
});
