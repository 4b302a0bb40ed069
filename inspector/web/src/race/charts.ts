import { cividis } from "../base/colours.ts";
import { part } from "../base/dom.ts";
import { duration, number, plural } from "../base/format.ts";
import { inks, toRgb, type Inks } from "../figures/inks.ts";
import { HeatScreen, PlotScreen } from "../figures/screen.ts";
import type { CellPoint, HeatSpec, PlotSpec, Series } from "../figures/spec.ts";
import type { Lane, StartedLane } from "./lane.ts";
import { LANES, type LaneName } from "./messages.ts";
import type { Frames, Store } from "./store.ts";

const HEIGHT = 164;
const SHADES = 201; // of the confidence, in steps of half a percent
const UNKNOWN = SHADES;
const MOST_POINTS = 400; // of a line

/** The charts under the lanes: known tokens, and when each position was committed. */
export class RaceCharts {
  private readonly race: PlotScreen;
  private readonly maps: Record<LaneName, LaneMap>;

  /** Draw into the elements with `data-chart` of the race's template. */
  constructor(root: ParentNode) {
    this.race = new PlotScreen(part<SVGSVGElement>(root, '[data-chart="race"]'));
    const map = (name: LaneName): LaneMap => new LaneMap(part(root, `[data-chart="${name}"]`));
    this.maps = { a: map("a"), b: map("b") };
  }

  /** Draw both lanes in a frame of each. */
  draw(store: Store, frames: Frames): void {
    const { svg } = this.race;
    svg.setAttribute("aria-label", raceName(store, frames));
    this.race.draw(raceSpec(store, frames, inks(svg)));
    const ends = store.started.map((lane) => lane.before + lane.rows.length);
    const most = Math.max(1, ...ends);
    for (const name of LANES) this.maps[name].draw(store.lanes[name], frames[name], most);
  }
}

/** The chart of known tokens in words. */
export function raceName(store: Store, frames: Frames): string {
  const told = store.started.map((lane) => {
    const frame = frames[lane.name];
    const when = store.timed ? ", " + duration(lane.clock[frame]) : "";
    const shown = `${number(lane.shown[frame])} of ${number(lane.at.length)}`;
    return `${lane.name.toUpperCase()} ${shown} after ${plural(lane.before + frame, "step")}${when}`;
  });
  return ["Known tokens, both lanes", ...told].join("; ");
}

/** The map of a lane in words. */
export function mapName(lane: Lane, frame: number): string {
  const places = (frame ? lane.rows.at(frame - 1)?.places : null) ?? [];
  const named = places.map((place) => place + 1).join(", ");
  const last = places.length ? `; at step ${lane.before + frame} token ` + named : "";
  return "Lane " + lane.name.toUpperCase() + ": step by position, coloured by confidence" + last;
}

/** Known tokens by time, or by step if the run was not timed. */
export function raceSpec(store: Store, frames: Frames, colours: Inks): PlotSpec {
  const { started, timed } = store;
  const most = Math.max(1, ...started.map((lane) => lane.at.length));
  const series = started.flatMap((lane) => laneSeries(lane, timed, frames[lane.name], colours));
  const labels = started.map((lane) => {
    const frame = frames[lane.name];
    const x = timed ? lane.clock[frame] : lane.before + frame;
    const text = lane.name.toUpperCase();
    return { x, y: lane.shown[frame], text, colour: colours[lane.name] };
  });
  const to = store.extent(timed ? "time" : "step") || 1;
  return {
    title: "Known tokens",
    x: timed
      ? { name: "time", from: 0, to, tick: duration }
      : { name: "step", from: 0, to, whole: true },
    y: { name: "tokens", from: 0, to: most, whole: true },
    series,
    labels,
    height: HEIGHT,
  };
}

/** The steps of a lane: faint, strong up to a frame, and with a dot at that frame. */
function laneSeries(lane: StartedLane, timed: boolean, frame: number, colours: Inks): Series[] {
  const xs = timed ? lane.clock : lane.clock.map((_, i) => lane.before + i);
  const ys = lane.shown;
  const own = { name: "", colour: colours[lane.name] };
  const steps = { ...own, kind: "step", dash: lane.name === "a" ? [] : [6, 3] } as const;
  const faint = thinned(xs.length);
  const strong = thinned(frame + 1);
  const read = (values: readonly number[], places: number[]): number[] =>
    places.map((place) => values[place]);
  return [
    { ...steps, xs: read(xs, faint), ys: read(ys, faint), width: 1, alpha: 0.35 },
    { ...steps, xs: read(xs, strong), ys: read(ys, strong), width: 2.5 },
    { ...own, kind: "points", size: 4, xs: [xs[frame]], ys: [ys[frame]] },
  ];
}

/** The first `count` numbers, or as many evenly chosen ones as a line can show, with the last. */
export function thinned(count: number): number[] {
  const every = Math.ceil(count / MOST_POINTS);
  const places = Array.from({ length: Math.ceil(count / every) }, (_, i) => i * every);
  if ((count - 1) % every) places.push(count - 1);
  return places;
}

/** When each position of a lane was committed: steps downwards, coloured by confidence. */
class LaneMap {
  private readonly screen = new HeatScreen();

  constructor(private readonly holder: HTMLElement) {
    holder.replaceChildren(this.screen.root);
  }

  draw(lane: Lane, frame: number, steps: number): void {
    this.holder.setAttribute("aria-label", mapName(lane, frame));
    this.screen.draw(mapSpec(lane, frame, steps, inks(this.holder)), null);
  }
}

/** The heat map of a lane in a frame, with `steps` rows. */
export function mapSpec(lane: Lane, frame: number, steps: number, colours: Inks): HeatSpec {
  const count = Math.max(lane.at.length, 1);
  const block = lane.start?.block ?? 0;
  const marks: { at: number }[] = [];
  const first = block - (lane.start?.shared ?? 0);
  for (let low = first; block && low < lane.at.length; low += block) marks.push({ at: low });
  const points = mapPoints(lane, frame, steps);
  return {
    title: "When each position was committed",
    key: [points.join(";"), count, steps, colours.ink].join(),
    x: { name: "token", count, marks },
    y: {
      name: "step",
      count: steps,
      marks: [{ at: lane.before + frame, colour: colours[lane.name] }],
    },
    value: (x, y) => points.find((point) => point[0] === x && point[1] === y)?.[2] ?? null,
    colour: (code) => (code === UNKNOWN ? toRgb(colours.ink) : cividis(code / (SHADES - 1))),
    points,
    ground: colours.mask,
    words: () => "",
    height: HEIGHT,
  };
}

/** The place, the step and the confidence of every token that is drawn. */
function mapPoints(lane: Lane, frame: number, steps: number): CellPoint[] {
  const points: CellPoint[] = [];
  for (let place = 0; place < lane.at.length; place++) {
    const token = lane.token(place, frame);
    if (!token || token.fixed || lane.before + token.row >= steps) continue;
    const code = token.sure === null ? UNKNOWN : Math.round(token.sure * (SHADES - 1));
    points.push([place, lane.before + token.row, code]);
  }
  return points;
}
