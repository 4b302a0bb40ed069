/** The cost of each step of a run, in milliseconds or GFLOPs, stacked by its parts. */
import { OwnerCache } from "../base/owner_cache.ts";
import { at, type NdArray } from "./arrays.ts";

/** The times and FLOPs of a run's steps (`inspector.views.time`). */
export interface TimeData {
  /** Milliseconds in the network [steps]. */
  forward_ms: NdArray;
  /** Milliseconds of deciding [steps]; with a guider, they include its time. */
  decide_ms: NdArray;
  /** GFLOPs [steps, parts]. */
  gflops: NdArray;
  /** The names of the parts of the FLOPs. */
  parts: string[];
  /** The guider's milliseconds and, within them, its prefill [steps, 2]; no steps without one. */
  guider_ms: NdArray;
  /** Tokens per step that offset the guider's time [steps]; empty without a guider. */
  needed: NdArray;
}

/** What the bars show. */
export type CostUnit = "ms" | "GFLOPs";

/** A part of every step's cost; `base` is the sum of the parts below it. */
export interface StackedPart {
  name: string;
  colour: string;
  ys: number[];
  base: number[];
}

/** The costs of all steps: by part, their sums, and the sums up to each step. */
export interface StepCosts {
  stacked: StackedPart[];
  total: number[];
  running: number[];
}

type Part = Omit<StackedPart, "base">;

const GUIDER_COLOUR = "#56b4e9";
/** Name and colour of each part of the FLOPs (`engine.core.events.PARTS`). */
const PART_LOOKS: Readonly<Record<string, readonly [string, string]>> = {
  projections: ["projections", "#0072b2"],
  attention: ["attention", "#e69f00"],
  ffn: ["feed-forward", "#009e73"],
  head: ["head", "#cc79a7"],
  selection: ["selection", "#d55e00"],
  guider: ["guider", GUIDER_COLOUR],
};

function column(array: NdArray, steps: number, i: number): number[] {
  return Array.from({ length: steps }, (_, step) => at(array, step, i));
}

function times(data: TimeData): Part[] {
  const network = Array.from(data.forward_ms.values);
  const deciding = Array.from(data.decide_ms.values);
  const first = { name: "network", colour: "#0072b2", ys: network };
  const second = { name: "deciding", colour: "#e69f00" };
  if (!data.guider_ms.shape[0]) return [first, { ...second, ys: deciding }];
  const whole = column(data.guider_ms, network.length, 0);
  const prefill = column(data.guider_ms, network.length, 1);
  return [
    first,
    { ...second, ys: deciding.map((ms, s) => Math.max(ms - whole[s], 0)) },
    { name: "guider", colour: GUIDER_COLOUR, ys: whole.map((ms, s) => ms - prefill[s]) },
    { name: "guider's prefill", colour: "#009e73", ys: prefill },
  ];
}

function flops(data: TimeData): Part[] {
  const steps = data.forward_ms.values.length;
  const guided = data.guider_ms.shape[0] > 0;
  return data.parts.flatMap((part, i) => {
    if (part === "guider" && !guided) return [];
    const [name, colour] = PART_LOOKS[part];
    return [{ name, colour, ys: column(data.gflops, steps, i) }];
  });
}

/** Parts on top of each other, with their sums. */
export function stack(parts: readonly Part[], steps: number): StepCosts {
  const total = new Array<number>(steps).fill(0);
  const stacked = parts.map((part) => {
    const base = total.slice();
    part.ys.forEach((y, s) => (total[s] += y));
    return { ...part, base };
  });
  let sum = 0;
  return { stacked, total, running: total.map((y) => (sum += y)) };
}

const COSTS = new OwnerCache<TimeData, StepCosts>();

/** The costs of a run's steps. */
export function stepCosts(data: TimeData, unit: CostUnit): StepCosts {
  return COSTS.of(data, unit, () =>
    stack(unit === "ms" ? times(data) : flops(data), data.forward_ms.values.length),
  );
}
