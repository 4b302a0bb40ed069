/** The range of a heat map's colours, as the reader sets it. Nothing here draws. */
import { scaleLinear, scaleLog } from "d3-scale";
import type { CellCodes, HeatSpec, ScaleLegend, ValueRange } from "./spec.ts";

const ROOM = 0.22; // of the ramp, between two labels

/** The legend of a heat map whose range the reader may change. */
export interface RangeLegend extends ScaleLegend {
  range: ValueRange;
}

/** The legend of a heat map if the reader may change its range; else null. */
export function rangeLegend({ legend }: Pick<HeatSpec, "legend">): RangeLegend | null {
  return legend?.kind === "scale" && legend.range ? { ...legend, range: legend.range } : null;
}

/** The place of a number in a range, from 0 to 1. */
export function placeInRange({ from, to, log }: ValueRange, number: number): number {
  const place = log
    ? Math.log(Math.max(number, Number.MIN_VALUE) / from) / Math.log(to / from)
    : (number - from) / (to - from);
  return Math.min(Math.max(place, 0), 1);
}

/** The number at a place of a range. */
function numberInRange({ from, to, log }: ValueRange, place: number): number {
  return log ? from * (to / from) ** place : from + (to - from) * place;
}

/** What is wrong with a range; empty if nothing is. */
export function rangeFault({ from, to, log }: ValueRange): string {
  if (!Number.isFinite(from) || !Number.isFinite(to)) return "Write a number in both fields.";
  if (from >= to) return "The first number has to be below the second.";
  return log && from <= 0 ? "A logarithmic scale begins above 0." : "";
}

/** A number as short as it can be. */
function plainText(number: number): string {
  return String(Number(number.toPrecision(3)));
}

/** Round numbers in a range: powers of ten if a logarithmic one has any within. */
function roundNumbers({ from, to, log }: ValueRange): number[] {
  if (!log) return scaleLinear().domain([from, to]).ticks(4);
  const all = scaleLog().domain([from, to]).ticks(10);
  const powers = all.filter((number) => {
    return number > from && number < to && number.toExponential().startsWith("1e");
  });
  return powers.length ? powers : all;
}

/** Labels of both ends, and of round numbers between them where there is room. */
export function rangeTicks(
  range: ValueRange,
  text: (number: number) => string = plainText,
): [number, string][] {
  const ticks: [number, string][] = [[0, "≤ " + text(range.from)]];
  for (const number of roundNumbers(range)) {
    const place = placeInRange(range, number);
    if (place - ticks[ticks.length - 1][0] >= ROOM && 1 - place >= ROOM) {
      ticks.push([place, text(number)]);
    }
  }
  return [...ticks, [1, "≥ " + text(range.to)]];
}

/** The heat map with its colours, palette and legend in another range. */
export function ranged(spec: HeatSpec, range: ValueRange | null): HeatSpec {
  const legend = rangeLegend(spec);
  if (!legend || !range) return spec;
  const { plain, cells } = spec;
  const colour: HeatSpec["colour"] = (value) => {
    const number = plain ? plain(value) : value;
    return typeof number === "number"
      ? legend.colour(placeInRange(range, number))
      : spec.colour(value);
  };
  const recoloured = (given: CellCodes): CellCodes => ({
    ...given,
    palette: given.palette.map((known, code) => known && colour(code)),
  });
  return {
    ...spec,
    key: [spec.key, range.from, range.to, range.log].join(),
    colour,
    cells: cells && ((): CellCodes => recoloured(cells())),
    legend: {
      ...legend,
      range,
      ticks: rangeTicks(range, legend.text),
      marks: legend.marks?.map((place) => placeInRange(range, numberInRange(legend.range, place))),
    },
  };
}
