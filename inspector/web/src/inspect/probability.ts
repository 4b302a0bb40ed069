/** Probabilities in one byte, with their colours. */
import { cividis, type Rgb } from "../base/colours.ts";
import type { ScaleLegend } from "../figures/spec.ts";

/** Codes are probabilities times this; larger ones stand for no probability. */
export const CODES = 254;

/** The colour of every code. */
export const CODE_COLOURS: readonly Rgb[] = Array.from({ length: CODES + 1 }, (_, code) =>
  cividis(code / CODES),
);

/** The probability of a code, as it stands in a CSV file. */
export function plainProbability(code: number): number {
  return Number((code / CODES).toFixed(3));
}

/** The legend of the colours of values from 0 to 1, such as probabilities and shares. */
export function shareScale(name: string): ScaleLegend {
  return {
    kind: "scale",
    name,
    range: { from: 0, to: 1, log: false },
    colour: cividis,
    ticks: [
      [0, "0"],
      [0.25, "0.25"],
      [0.5, "0.5"],
      [0.75, "0.75"],
      [1, "1"],
    ],
  };
}
