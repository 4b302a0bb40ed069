import assert from "node:assert/strict";
import test from "node:test";
import type { PlotSpec } from "../src/figures/spec.ts";
import { Panel } from "../src/inspect/panel.ts";
import {
  drawRunning,
  regionWords,
  scheduleSentence,
  siteShare,
  type ScheduleData,
} from "../src/inspect/views/schedule.ts";
import { bytes, floats, frame, ints } from "./inspected.ts";

/** Two steps; `planned` and `done` are kinds by step and region. */
function data(planned: number[], done: number[], differs: number[]): ScheduleData {
  return {
    planned: bytes([planned.length / 3, 3], planned),
    done: bytes([2, 3], done),
    differs: ints([differs.length / 2, 2], differs),
    running: floats([2], [100, 50]),
  };
}

test("a trace without plans says so", () => {
  const found = scheduleSentence(data([], [0, 0, 0, 2, 2, 2], []), 2);
  assert.equal(found, "This trace has no planned schedule, only what was done.");
});

test("a schedule that was kept says so", () => {
  const kinds = [0, 0, 0, 2, 1, 2];
  assert.equal(
    scheduleSentence(data(kinds, kinds, []), 2),
    "Every step matched the planned schedule.",
  );
});

test("the first step and region that differ are named, with both kinds", () => {
  const found = scheduleSentence(data([0, 0, 0, 2, 1, 2], [0, 0, 0, 2, 0, 3], [1, 1, 1, 2]), 2);
  assert.ok(
    found.startsWith(
      "Done differs from planned in 2 of 6 cells; first in step 2, current block: planned partial, done full. ",
    ),
  );
});

test("the share of a layer is that of a site, or the mean of all four", () => {
  const rows = { done: ints([1, 1, 4], [0, 2, 4, 8]) };
  assert.equal(siteShare(rows, 8, "2", 0, 0), 0.5);
  assert.equal(siteShare(rows, 8, "mean", 0, 0), 0.4375);
});

test("a region whose share is not there says why", () => {
  const kinds = data([0, 0, 0, 2, 1, 2], [0, 0, 0, 2, 1, 2], []);
  const words = (found?: object): string => {
    const own = { number: { value: () => 2 }, slice: { value: () => found } };
    return regionWords(Object.create(Panel.prototype, own) as Panel, kinds, 1, 0);
  };
  const head = "Step 2, prompt: planned reuse, done reuse; ";
  const facts = { portion: floats([2, 3], [1, 1, 1, 0.25, NaN, 0]) };
  assert.equal(words(), head + "reading …");
  assert.equal(words({ missing: "It is gone." }), head + "It is gone.");
  assert.equal(words({ arrays: facts }), head + "25 % of its token-layers recomputed");
});

test("the running share says nothing of a lane that took no step", () => {
  Object.assign(globalThis, { getComputedStyle: () => ({ getPropertyValue: () => "" }) });
  const shown: PlotSpec[] = [];
  const lanes = { a: { before: 0 }, b: { before: 0 } };
  const store = { started: [{ name: "a" }, { name: "b" }], lanes };
  const frames = { a: { ...frame(), steps: 0 }, b: frame() };
  const panel: object = {
    ...{ inspector: { store, frames }, spot: { step: 0 }, number: (step: number) => step + 1 },
    part: (_: object, name: string) => ({
      running: floats([3], name === "a" ? [] : [100, 75, 50]),
    }),
    bothFigure: () => ({ show: (spec: PlotSpec) => shown.push(spec) }),
  };
  drawRunning(panel as Panel);
  assert.equal(shown[0].series.length, 1);
  assert.equal(shown[0].words?.(2, 0), "Lane B: 75 % after step 2");
});
