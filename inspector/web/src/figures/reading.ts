/** Reading figures by keyboard. */
import type { FigureSpec, HeatSpec, PlotSpec } from "./spec.ts";

/** A value of a chart that the keyboard can reach: x and y. */
export type Stop = readonly [x: number, y: number];

/** A cell of a heat map. */
export interface Cell {
  x: number;
  y: number;
}

/** How many places a key moves with Shift. */
const FAR = 10;

/** The name of a figure for screen readers. */
export function figureName(spec: FigureSpec): string {
  const [x, y] = [spec.x.name, spec.y.name];
  const upwards = spec.series || spec.y.up ? " upwards" : " downwards";
  const axes = [x && x + " across", y && y + upwards].filter(Boolean);
  const size = spec.series ? "" : `, ${spec.x.count} by ${spec.y.count} cells`;
  const zoom = spec.series ? "" : " Plus and minus zoom, 0 shows all cells.";
  return `${spec.title}. ${axes.join(", ")}${size}. Use the arrow keys to read the values.${zoom}`;
}

/** Whether the words of a chart are of a point, not only of an x. */
function ofPoints(spec: PlotSpec): boolean {
  return spec.words?.length === 2;
}

/** The values that can be read, by x and then y; one for each x unless the words are of a point. */
export function plotStops(spec: PlotSpec): Stop[] {
  const plane = ofPoints(spec);
  const stops = new Map<string | number, Stop>();
  for (const { xs, ys, base } of spec.words ? spec.series : []) {
    xs.forEach((x, i) => {
      const y = (base?.[i] ?? 0) + (ys[i] ?? NaN);
      if (Number.isFinite(y)) stops.set(plane ? `${x},${y}` : x, [x, y]);
    });
  }
  return [...stops.values()].sort((one, other) => one[0] - other[0] || one[1] - other[1]);
}

/** The index of the stop nearest to the last one that was read, or to the cursor. */
function plotPlace(spec: PlotSpec, stops: readonly Stop[], stop: Stop | null): number {
  const here = stop && (ofPoints(spec) || stop[0] === spec.at) ? stop : null;
  const x = here?.[0] ?? spec.at ?? stop?.[0] ?? stops[0][0];
  const far = (one: Stop): number => Math.abs(one[0] - x) + (here ? Math.abs(one[1] - here[1]) : 0);
  return stops.reduce((best, one, i) => (far(one) < far(stops[best]) ? i : best), 0);
}

const STEPS: Readonly<Record<string, number>> = {
  ArrowRight: 1,
  ArrowUp: 1,
  ArrowLeft: -1,
  ArrowDown: -1,
  Enter: 0,
};

/** The stop that a key leads to; null if the key does not read or there is nothing to read. */
export function nextStop(
  spec: PlotSpec,
  stop: Stop | null,
  key: string,
  shift: boolean,
): Stop | null {
  const stops = plotStops(spec);
  const last = stops.length - 1;
  if (last < 0) return null;
  if (key === "Home") return stops[0];
  if (key === "End") return stops[last];
  if (!(key in STEPS)) return null;
  const to = plotPlace(spec, stops, stop) + STEPS[key] * (shift ? FAR : 1);
  return stops[Math.min(Math.max(to, 0), last)];
}

const MOVES: Readonly<Record<string, readonly [number, number]>> = {
  ArrowRight: [1, 0],
  ArrowLeft: [-1, 0],
  ArrowDown: [0, 1],
  ArrowUp: [0, -1],
  Enter: [0, 0],
};

/** The cell that a key leads to from the cursor, or from the last cell; null if it does not read. */
export function nextCell(
  spec: HeatSpec,
  last: Cell | null,
  key: string,
  shift: boolean,
): Cell | null {
  const held = (to: number, count: number): number => Math.min(Math.max(to, 0), count - 1);
  const x = held(spec.at?.x ?? last?.x ?? 0, spec.x.count); // the last cell may be of a larger map
  const y = held(spec.at?.y ?? last?.y ?? 0, spec.y.count);
  if (key === "Home") return { x: 0, y };
  if (key === "End") return { x: spec.x.count - 1, y };
  if (!(key in MOVES)) return null;
  const far = shift ? FAR : 1;
  const [dx, dy] = MOVES[key];
  return { x: held(x + dx * far, spec.x.count), y: held(y + dy * far, spec.y.count) };
}
