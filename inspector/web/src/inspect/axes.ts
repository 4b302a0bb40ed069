/** Axes of figures; places of steps and layers are numbered from 1. */
import type { CellAxis, PlotAxis, PlotSpec, Series } from "../figures/spec.ts";
import type { LaneName } from "../race/messages.ts";
import type { Panel } from "./panel.ts";

/**
 * An axis of so many steps, the first of which has the number `first` from 0, with half a step of
 * room at either end.
 */
export function stepAxis(steps: number, first = 0): PlotAxis {
  return { name: "step", from: first + 0.5, to: first + steps + 0.5, whole: true };
}

/** An axis of layers: 1 to `layers`, with half a layer of room at either end. */
export function layerAxis(layers: number): PlotAxis {
  return { name: "layer", from: 0.5, to: layers + 0.5, whole: true };
}

function indexAt(x: number, count: number): number {
  return Math.min(Math.max(Math.round(x) - 1, 0), count - 1);
}

/** The step, from 0, next to a place on `stepAxis(steps, first)`. */
export function stepAt(x: number, steps: number, first = 0): number {
  return indexAt(x - first, steps);
}

/** The layer, from 0, next to a place on `layerAxis(layers)`. */
export function layerAt(x: number, layers: number): number {
  return indexAt(x, layers);
}

/** What the plots over all layers have in common: axis, cursor, and a text and a pick by layer. */
export function overLayers(
  panel: Panel,
  words: (layer: number) => string,
): Pick<PlotSpec, "x" | "at" | "words" | "pick"> {
  const { layers } = panel.frame;
  return {
    x: layerAxis(layers),
    at: panel.spot.layer + 1,
    words: (x) => words(layerAt(x, layers)),
    pick: (x, _, pin) => panel.pick({ layer: layerAt(x, layers) }, pin),
  };
}

/** The places of `count` steps or layers on their axis, from `first` + 1 on. */
export function placesOf(count: number, first = 0): number[] {
  return Array.from({ length: count }, (_, i) => first + i + 1);
}

/** The line of a lane, from its step `first`, on an axis of steps. `colours` are those of the theme (`Inks`). */
export function laneSeries(
  name: LaneName,
  ys: readonly number[],
  colours: Readonly<Record<LaneName, string>>,
  first = 0,
): Series {
  return {
    name: "Lane " + name.toUpperCase(),
    colour: colours[name],
    dash: name === "a" ? [6, 3] : [],
    xs: placesOf(ys.length, first),
    ys,
  };
}

/** The smallest of 1, 2 and 5 times a power of ten that is at least `value`, which is above 0. */
export function niceAbove(value: number): number {
  const power = 10 ** Math.floor(Math.log10(value));
  const factor = [1, 2, 5].find((n) => n * power >= value * (1 - 1e-9)) ?? 10;
  return Number((factor * power).toPrecision(1));
}

const LEAST_BAR = 0.1; // the highest bar has at least about this share of the axis
const CLOSE = 2.5; // the largest ratio of two neighbours among 1, 2, 5 and 10

/**
 * The end of an axis for bars and lines of shares of 1, in percent: a nice number above all bars,
 * and above the values of the lines that are at most ten times the highest bar. The others are
 * above the axis, so that the bars stay visible (see `nameOnAxis`). Nulls have no place.
 */
export function percentEnd(
  bars: readonly (number | null)[],
  lines: readonly (number | null)[],
): number {
  const known = (shares: readonly (number | null)[]): number[] =>
    shares.filter((share) => share !== null);
  const bar = Math.max(0, ...known(bars));
  const near = known(lines).filter((share) => bar === 0 || share <= bar / LEAST_BAR);
  const most = Math.max(bar, ...near);
  return most > 0 ? niceAbove(100 * most) : 100;
}

/** The ends of two axes: if they are neighbouring nice numbers, both charts get the larger. */
export function alike(one: number, other: number): [number, number] {
  const most = Math.max(one, other);
  return most / Math.min(one, other) <= CLOSE ? [most, most] : [one, other];
}

/** The name of a line of shares of 1; it says if some are above an axis that ends at `end` %. */
export function nameOnAxis(name: string, shares: readonly (number | null)[], end: number): string {
  const over = shares.some((share) => share !== null && 100 * share > end * (1 + 1e-9));
  return over ? `${name} (above the axis where over ${end} %)` : name;
}

/** The first cells of an axis, with the lines among them. */
export function shortened(axis: CellAxis, count: number): CellAxis {
  return { ...axis, count, marks: axis.marks?.filter((mark) => mark.at < count) };
}
