import { cividis, type Rgb } from "../base/colours.ts";
import { part } from "../base/dom.ts";
import { duration, plural } from "../base/format.ts";
import { inks, toRgb, type Inks } from "../figures/inks.ts";
import { HeatScreen, PlotScreen } from "../figures/screen.ts";
import type { CellCodes, HeatSpec, PlotSpec, Series } from "../figures/spec.ts";
import type { Lane, StartedLane } from "./lane.ts";
import { LANES, type LaneName } from "./messages.ts";
import type { Frames, Store } from "./store.ts";

const HEIGHT = 164;
const SHADES = 201; // of the confidence, in steps of half a percent
const UNKNOWN = SHADES;
const MASKED = 255;

/** The charts under the lanes: tokens revealed, and when each position was unmasked. */
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
    const most = Math.max(1, ...store.started.map((lane) => lane.rows.length));
    for (const name of LANES) this.maps[name].draw(store.lanes[name], frames[name], most);
  }
}

/** The chart of tokens revealed in words. */
export function raceName(store: Store, frames: Frames): string {
  const told = store.started.map((lane) => {
    const frame = frames[lane.name];
    const when = store.timed ? ", " + duration(lane.clock[frame]) : "";
    const shown = `${lane.name.toUpperCase()} ${lane.shown[frame]} of ${lane.at.length}`;
    return shown + " after " + plural(frame, "step") + when;
  });
  return ["Tokens revealed, both lanes", ...told].join("; ");
}

/** The map of a lane in words. */
export function mapName(lane: Lane, frame: number): string {
  const places = (frame ? lane.rows.at(frame - 1)?.places : null) ?? [];
  const named = places.map((place) => place + 1).join(", ");
  const last = places.length ? `; at step ${frame} token ` + named : "";
  return "Lane " + lane.name.toUpperCase() + ": step by position, coloured by confidence" + last;
}

/** Tokens revealed by time, or by step if the run was not timed. */
export function raceSpec(store: Store, frames: Frames, colours: Inks): PlotSpec {
  const { started, timed } = store;
  const most = Math.max(1, ...started.map((lane) => lane.at.length));
  const series = started.flatMap((lane) => laneSeries(lane, timed, frames[lane.name], colours));
  const labels = started.map((lane) => {
    const frame = frames[lane.name];
    const x = timed ? lane.clock[frame] : frame;
    const text = lane.name.toUpperCase();
    return { x, y: lane.shown[frame], text, colour: colours[lane.name] };
  });
  const to = store.extent(timed ? "time" : "step") || 1;
  return {
    title: "Tokens revealed",
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
  const xs = timed ? lane.clock : lane.clock.map((_, i) => i);
  const own = { name: "", colour: colours[lane.name] };
  const steps = { ...own, kind: "step", dash: lane.name === "a" ? [] : [6, 3] } as const;
  const [past, shown] = [xs.slice(0, frame + 1), lane.shown.slice(0, frame + 1)];
  return [
    { ...steps, xs, ys: lane.shown, width: 1, alpha: 0.35 },
    { ...steps, xs: past, ys: shown, width: 2.5 },
    { ...own, kind: "points", size: 4, xs: past.slice(-1), ys: shown.slice(-1) },
  ];
}

/** When each position of a lane was unmasked: steps downwards, coloured by confidence. */
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
  for (let low = block; block && low < lane.at.length; low += block) marks.push({ at: low });
  let made: CellCodes | null = null;
  const cells = (): CellCodes => (made ??= mapCells(lane, frame, count, steps, colours));
  return {
    title: "When each position was unmasked",
    key: [mapKey(lane, frame), count, steps, colours.ink].join(),
    x: { name: "token", count, marks },
    y: { name: "step", count: steps, marks: [{ at: frame, colour: colours[lane.name] }] },
    value: (x, y) => {
      const code = cells().codes[y * count + x];
      return cells().palette[code] ? code : null;
    },
    colour: (code) => cells().palette[code] ?? [0, 0, 0],
    cells,
    ground: colours.mask,
    words: () => "",
    height: HEIGHT,
  };
}

/** The row and confidence of every token that is drawn. */
function mapKey(lane: Lane, frame: number): string {
  const drawn = lane.at.map((_, place) => {
    const token = lane.token(place, frame);
    return token && !token.fixed ? `${token.row}:${token.sure ?? ""}` : "";
  });
  return drawn.join();
}

/** The cells of a lane's map: the confidence of each token in the row of its step. */
function mapCells(
  lane: Lane,
  frame: number,
  count: number,
  steps: number,
  colours: Inks,
): CellCodes {
  const codes = new Uint8Array(count * steps).fill(MASKED);
  for (let place = 0; place < lane.at.length; place++) {
    const token = lane.token(place, frame);
    if (!token || token.fixed || token.row >= steps) continue;
    const code = token.sure === null ? UNKNOWN : Math.round(token.sure * (SHADES - 1));
    codes[token.row * count + place] = code;
  }
  const palette: (Rgb | null)[] = Array.from({ length: SHADES }, (_, i) => {
    return cividis(i / (SHADES - 1));
  });
  if (codes.includes(UNKNOWN)) palette[UNKNOWN] = toRgb(colours.ink);
  return { codes, palette };
}
