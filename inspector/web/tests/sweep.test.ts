import assert from "node:assert/strict";
import test from "node:test";
import type { Panel } from "../src/inspect/panel.ts";
import { drawSweep, type SweepData, sweepWords } from "../src/inspect/views/sweep.ts";

test("the rates of the sweep are of positions, of which padding is a part", () => {
  const points = [0, 0.5].map((rho) => ({ rho, interval: 2, tpot_ms: 8 }));
  const data = { points } as unknown as SweepData;
  assert.equal(sweepWords(data, 0.1), "ρ = 0: K_r 2 125 positions/s (8.00 ms per position)");
});

test("the figure of a sweep that is missing says why, and does not read for ever", () => {
  const said: (string | null)[] = [];
  const figure = {
    root: { classList: { add: () => undefined } },
    wait: (reason: string | null) => said.push(reason),
  };
  const draw = (found?: object): void => {
    const inspector = { given: () => found, document: () => null };
    const panel: object = {
      ...{ inspector, cursor: { lane: "b" } },
      ...{ block: () => ({}), figure: () => figure },
    };
    drawSweep(panel as Panel);
  };
  draw();
  draw({ missing: "It is gone." });
  assert.deepEqual(said, [null, "It is gone."]);
});
