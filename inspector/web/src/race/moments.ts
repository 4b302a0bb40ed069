/**
 * Moments of a replay. The axis of alignment (time, steps or known tokens) may have the same
 * value for several frames: a step that commits nothing reveals no token. A moment therefore is a
 * value and the number of steps after the first frame that has this value.
 */

const CLOSE = 1e-6; // values that differ by less are the same

/** A place of the replay; `later` is Infinity for the last frame of the value. */
export interface Moment {
  value: number;
  later: number;
}

/** The first and the last frame that have a value, or the frame before it if none has it. */
function span(values: readonly number[], value: number): [first: number, last: number] {
  let last = 0;
  while (last + 1 < values.length && values[last + 1] <= value + CLOSE) last++;
  return values[last] < value - CLOSE ? [last, last] : [values.indexOf(values[last]), last];
}

/** The frame of a lane at a moment; `values` are the values of the lane's frames. */
export function frameAt(values: readonly number[], { value, later }: Moment): number {
  const [first, last] = span(values, value);
  return Math.min(first + later, last);
}

/** The moment at which a lane shows a frame; other lanes show the last frame if this one does. */
export function momentOf(values: readonly number[], frame: number): Moment {
  const value = values[frame];
  const [first, last] = span(values, value);
  return { value, later: frame < last ? frame - first : Infinity };
}

/** How many frames the lane with the most frames at a value has there; at least 1. */
export function framesAt(series: readonly (readonly number[])[], value: number): number {
  const counts = series.map((values) => {
    const [first, last] = span(values, value);
    return last - first + 1;
  });
  return Math.max(1, ...counts);
}

/** All moments at which a frame begins, in order. */
export function momentsOf(series: readonly (readonly number[])[]): Moment[] {
  const counts = new Map<number, number>();
  for (const values of series) {
    const own = new Map<number, number>();
    for (const value of values) own.set(value, (own.get(value) ?? 0) + 1);
    for (const [value, count] of own) counts.set(value, Math.max(counts.get(value) ?? 0, count));
  }
  return [...counts]
    .sort(([a], [b]) => a - b)
    .flatMap(([value, count]) => Array.from({ length: count }, (_, later) => ({ value, later })));
}

/**
 * The moment `by` moments after another one (before it, if negative), within the first and the
 * last. Between two moments the nearest one in this direction counts as the first.
 */
export function moved(moments: readonly Moment[], from: Moment, by: number): Moment {
  const notAfter = ({ value, later }: Moment): boolean =>
    value < from.value - CLOSE || (value <= from.value + CLOSE && later <= from.later);
  const now = moments.findLastIndex(notAfter);
  const between = by < 0 && now >= 0 && moments[now].value < from.value - CLOSE ? 1 : 0;
  const next = Math.min(Math.max(now + between + by, 0), moments.length - 1);
  return moments[next] ?? { value: 0, later: 0 };
}
