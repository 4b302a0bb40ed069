/** The view “Time”, on a page that draws nothing. */
import assert from "node:assert/strict";
import test from "node:test";
import type { PlotSpec } from "../src/figures/spec.ts";
import { Inspector } from "../src/inspect/inspector.ts";
import type { Panel } from "../src/inspect/panel.ts";
import type { TimeData } from "../src/inspect/step_costs.ts";
import { time } from "../src/inspect/views/time.ts";
import { floats, frame } from "./inspected.ts";

function timesOf(steps: number): TimeData {
  const ms = floats([steps], Array<number>(steps).fill(2));
  return {
    ...{ forward_ms: ms, decide_ms: ms, gflops: floats([steps, 0], []), parts: [] },
    ...{ guider_ms: floats([0, 2], []), needed: floats([0], []) },
  };
}

test("a lane that took no step has no times, and says why", () => {
  Object.assign(globalThis, { getComputedStyle: () => ({ getPropertyValue: () => "" }) });
  const times = { a: timesOf(0), b: timesOf(3) };
  const lane = { before: 0, stepNumber: (row: number) => row + 1, rows: [] };
  const store = { started: [{ name: "a" }, { name: "b" }], lanes: { a: lane, b: lane } };
  const given = (name: "a" | "b", source: string): object | undefined =>
    source === "time" ? times[name] : undefined;
  const frames = { a: { ...frame(), steps: 0 }, b: frame() };
  const inspector = Object.create(Inspector.prototype, {
    store: { value: { ...store, version: "1" } },
    ...{ frames: { value: frames }, given: { value: given } },
  }) as Inspector;
  const note = { textContent: "" };
  const shown: Partial<Record<string, PlotSpec>> = {};
  const roots: Partial<Record<string, { hidden?: boolean; classList: object }>> = {};
  const figure = (name: string): object => ({
    root: (roots[name] ??= { classList: { add: () => undefined } }),
    show: (spec: PlotSpec) => (shown[name] = spec),
    wait: () => undefined,
  });
  const panel: object = {
    ...{ inspector, figure, bothFigure: figure, cursor: { lane: "b", step: 0 }, frame: frames.b },
    ...{ choice: () => "ms", number: (step: number) => step + 1 },
    block: (name: string) => (name === "untimed" ? note : {}),
  };
  time.draw(panel as Panel, undefined);
  assert.equal(note.textContent, "Lane A: The run ended before the first step of this lane.");
  assert.deepEqual([roots["time-a"]?.hidden, roots["time-b"]?.hidden], [true, false]);
  assert.equal(shown["time-sum"]?.words?.(2, 0), "Lane B after step 2: 8 ms");
});
