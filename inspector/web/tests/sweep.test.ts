import assert from "node:assert/strict";
import test from "node:test";
import { type SweepData, sweepWords } from "../src/inspect/views/sweep.ts";

test("the rates of the sweep are of positions, of which padding is a part", () => {
  const points = [0, 0.5].map((rho) => ({ rho, interval: 2, tpot_ms: 8 }));
  const data = { points } as unknown as SweepData;
  assert.equal(sweepWords(data, 0.1), "ρ = 0: K_r 2 125 positions/s (8.00 ms per position)");
});
