/** The figure of a search: time against what is kept. */
import { percent } from "../base/format.ts";
import type { PlotSpec, Series } from "../figures/spec.ts";
import { points, type Advice, type Measured, type Point } from "./messages.ts";
import { hasIntervals, keptWords, kindWords, speedWords } from "./words.ts";

const ORIGINS: readonly [Measured["from"], string, string][] = [
  ["published", "defaults and published settings", "#d55e00"],
  ["searched", "found by the search", "#0072b2"],
  ["random", "drawn at random", "#009e73"],
  ["fitted", "fitted to the recorded drift", "#cc79a7"],
];
const GREY = "#7f7f7f";
const LEAST_SPAN = 5; // percentage points of the vertical axis

/** A point that can be drawn: one whose kept share is known. */
type Judged = Point & { kept: NonNullable<Point["kept"]> };

function judged(advice: Advice): Judged[] {
  return points(advice).filter((one): one is Judged => one.kept !== null);
}

/** Measured settings by speed and kept share; null if there is none. */
export function frontFigure(advice: Advice): PlotSpec | null {
  const found = judged(advice);
  if (!found.length) return null;
  const series = [...ORIGINS.flatMap((origin) => ofOrigin(found, origin)), ...frontLine(found)];
  const { keep, of } = advice.request;
  const low = Math.min(...found.map(({ kept, tested }) => (tested ? kept.low : kept.share)), keep);
  const high = Math.max(...found.map(({ kept, tested }) => (tested ? kept.high : kept.share)), 1);
  const speeds = found.flatMap((one) =>
    one.tested ? [one.speed_up_low, one.speed_up_high] : [one.speed_up],
  );
  return {
    title: "Settings by speed and by what they keep of plain decoding",
    x: {
      name: "times as fast as plain decoding",
      from: Math.min(...speeds, 1) * 0.95,
      to: Math.max(...speeds, 1) * 1.05,
    },
    y: {
      name: `% ${kindWords(of)}`,
      from: Math.max(Math.min(100 * low - 1, 100 * high - LEAST_SPAN), 0),
      to: 100 * high + 1,
    },
    series,
    rules: [
      { y: 100 * keep, dash: [6, 3], text: `asked for ${percent(keep)}` },
      { x: 1, dash: [2, 3] },
    ],
    height: 340,
    words: (x, y) => nearestWords(found, x, y),
  };
}

function ofOrigin(
  found: readonly Judged[],
  [origin, name, colour]: (typeof ORIGINS)[number],
): Series[] {
  const mine = found.filter((one) => one.from === origin);
  const series: Series[] = [];
  const tested = mine.filter((one) => one.tested);
  const others = mine.filter((one) => !one.tested);
  const bar = (xs: number[], ys: number[]): Series => ({
    name: "",
    table: `${name}, 95 % interval`,
    colour,
    xs,
    ys,
    width: 1.5,
  });
  for (const { speed_up: x, speed_up_low, speed_up_high, kept } of tested.filter(hasIntervals)) {
    series.push(bar([x, x], [100 * kept.low, 100 * kept.high]));
    series.push(bar([speed_up_low, speed_up_high], [100 * kept.share, 100 * kept.share]));
  }
  const marks = (name: string, of: readonly Judged[], mark: Series["mark"]): Series => ({
    name,
    kind: "points",
    colour,
    mark,
    size: mark ? 3 : 5,
    xs: of.map((one) => one.speed_up),
    ys: of.map((one) => 100 * one.kept.share),
  });
  if (others.length) series.push(marks(`${name}, search prompts only`, others, "cross"));
  if (tested.length) series.push(marks(`${name}, new prompts`, tested, undefined));
  return series;
}

/** The settings on the Pareto front, joined from the slowest to the fastest. */
function frontLine(found: readonly Judged[]): Series[] {
  const front = found.filter((one) => one.front).sort((a, b) => a.speed_up - b.speed_up);
  if (front.length < 2) return [];
  const ys = front.map((one) => 100 * one.kept.share);
  const xs = front.map((one) => one.speed_up);
  return [{ name: "Pareto front", colour: GREY, dash: [4, 3], xs, ys }];
}

/** The setting nearest to a place of the figure, in words. */
function nearestWords(found: readonly Judged[], x: number, y: number): string {
  const far = (one: Judged): number =>
    Math.hypot((one.speed_up - x) / Math.max(x, 0.1), (100 * one.kept.share - y) / 20);
  const near = found.reduce((best, one) => (far(one) < far(best) ? one : best));
  const where = near.tested ? "on new prompts" : "on prompts of the search";
  return `${near.name}: ${speedWords(near)} times as fast, keeps ${keptWords(near)} ${where}`;
}
