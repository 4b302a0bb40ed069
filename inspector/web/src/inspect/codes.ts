/** Drift codes: 1 − cosine in one byte, on a scale that is linear near 0 and then logarithmic. */
import { cividis, type Rgb } from "../base/colours.ts";
import type { PlotAxis, ScaleLegend } from "../figures/spec.ts";

/** The code of a cell that was not evaluated. */
export const NO_DATA = 255;

const CODE_SCALE = 1e-3;
const CODE_RANGE = Math.log(1 + 2 / CODE_SCALE);
const LOWEST = 1e-4; // the colours go from here to 1

/** A code as the value of a cell; null for NO_DATA. */
export function known(code: number): number | null {
  return code < NO_DATA ? code : null;
}

/** 1 − cosine of every code; NaN for NO_DATA. */
export const DRIFT = Float64Array.from({ length: 256 }, (_, code) =>
  code === NO_DATA ? NaN : CODE_SCALE * (Math.exp((code / 254) * CODE_RANGE) - 1),
);

/** The place of a drift between 0.0001 (0) and 1 (1) on a logarithmic scale. */
export function decade(drift: number): number {
  const log = Math.log10(Math.max(drift, 1e-12) / LOWEST) / 4;
  return Math.min(Math.max(log, 0), 1);
}

/** The colour of every code; NO_DATA has none. */
export const DRIFT_COLOURS: readonly Rgb[] = Array.from(DRIFT.subarray(0, NO_DATA), (drift) =>
  cividis(decade(drift)),
);

/** The colour of a code. */
export function driftColour(code: number): Rgb {
  return DRIFT_COLOURS[code];
}

/** A code as text, of a run of which all evaluated drifts were recorded (`isWhole`), or not. */
export function driftText(code: number, whole: boolean): string {
  if (code === NO_DATA) return whole ? "not evaluated" : "not evaluated or not recorded";
  return DRIFT[code] < LOWEST ? "below 0.0001" : DRIFT[code].toPrecision(2);
}

/** The legend of the drift colours. */
export const DRIFT_SCALE: ScaleLegend = {
  kind: "scale",
  name: "1 − cosine",
  range: { from: LOWEST, to: 1, log: true },
  colour: cividis,
  ticks: [
    [0, "≤ 0.0001"],
    [0.25, "0.001"],
    [0.5, "0.01"],
    [0.75, "0.1"],
    [1, "1"],
  ],
};

/** The axis of drifts in a chart. Those below its lower end stand at this end. */
export const DRIFT_AXIS: PlotAxis = {
  name: "1 − cosine",
  from: LOWEST,
  to: 2,
  log: true,
  tick: (drift) => (drift > 1.5 * LOWEST ? String(Number(drift.toPrecision(1))) : "≤ 0.0001"),
};
