/** Differences between the lanes, as the cells of heat maps. */
import { puor } from "../base/colours.ts";
import type { HeatSpec } from "../figures/spec.ts";
import type { Lane } from "../race/lane.ts";

const DECADES = 2; // the colours go from 1/100 to 100
const COSINES = 0.5; // and from -0.5 to 0.5
/** The least differences whose sign is also drawn as a line in the cell. */
export const MARKED_DECADES = Math.log10(2);
export const MARKED_COSINE = 0.05;
const LEAST = 1e-4; // smaller drifts count as this one, so that noise is no difference
const SMALL = "below 0.0001 as 0.0001"; // what the numbers of a figure say of it

/** The decades by which a drift of B is larger than one of A; null if one of them is unknown. */
export function decadesApart(a: number, b: number): number | null {
  if (Number.isNaN(a) || Number.isNaN(b)) return null;
  return Math.log10(Math.max(b, LEAST) / Math.max(a, LEAST));
}

/** The cosine of B minus that of A, of two drifts; null if one of them is unknown. */
export function cosinesApart(a: number, b: number): number | null {
  return Number.isNaN(a) || Number.isNaN(b) ? null : a - b;
}

type Looks = Pick<HeatSpec, "colour" | "legend" | "unit" | "blank" | "plain">;

/** How a heat map of `decadesApart` looks. */
export const RATIO_LOOKS: Looks = {
  colour: (decades) => puor(0.5 - decades / (2 * DECADES)),
  legend: {
    kind: "scale",
    name: `drift of B ÷ drift of A, ${SMALL}`,
    colour: (place) => puor(1 - place),
    ticks: [
      [0, "≤ 0.01"],
      [0.25, "0.1"],
      [0.5, "1"],
      [0.75, "10"],
      [1, "≥ 100"],
    ],
    items: [
      [puor(0.3), "at least twice as large in B", "", "over"],
      [puor(0.7), "at most half as large in B", "", "under"],
    ],
  },
  unit: `drift of B / drift of A, ${SMALL}`,
  blank: "not known in both lanes",
  plain: (decades) => Number((10 ** decades).toPrecision(4)),
};

/** How a heat map of `cosinesApart` looks. */
export const COSINE_LOOKS: Looks = {
  colour: (apart) => puor(0.5 + apart / (2 * COSINES)),
  legend: {
    kind: "scale",
    name: "cosine of B − cosine of A",
    colour: puor,
    ticks: [
      [0, "≤ −0.5"],
      [0.25, "−0.25"],
      [0.5, "0"],
      [0.75, "0.25"],
      [1, "≥ 0.5"],
    ],
    items: [
      [puor(0.3), `smaller in B by at least ${MARKED_COSINE}`, "", "under"],
      [puor(0.7), `larger in B by at least ${MARKED_COSINE}`, "", "over"],
    ],
  },
  unit: "cosine of B - cosine of A",
  blank: "not known in both lanes",
  plain: (apart) => Number(apart.toPrecision(4)),
};

/**
 * How much larger or smaller a drift of B is than one of A, in words. If one of them is too small
 * for the scale, only a bound of their ratio is known.
 */
export function ratioWords(a: number, b: number): string {
  const decades = decadesApart(a, b);
  if (decades === null) return "not known in both lanes";
  if (a < LEAST && b < LEAST) return "both too small to compare";
  const bound = a < LEAST || b < LEAST;
  const times = 10 ** Math.abs(decades);
  if (times < 1.05 && !bound) return "about equal";
  const text = times >= 10 ? times.toFixed(0) : times.toFixed(1);
  return `${bound ? "at least " : ""}${text} times as ${b > a ? "large" : "small"} in B`;
}

/** The steps that both lanes took, counted with those before a branch: the first and the count. */
export function sharedSteps(a: Lane, b: Lane): { first: number; count: number } {
  const first = Math.max(a.before, b.before);
  const end = Math.min(a.before + a.rows.length, b.before + b.rows.length);
  return { first, count: Math.max(end - first, 0) };
}
