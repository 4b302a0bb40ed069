import { Lane, started, type StartedLane } from "./lane.ts";
import { LANES, type LaneName, type LinkSource, type News, type Summary } from "./messages.ts";
import { frameAt, momentsOf, type Moment } from "./moments.ts";

/** How frames of the two lanes are matched: by time, by step or by known tokens. */
export type Align = "time" | "step" | "tokens";

/** A frame of each lane. */
export type Frames = Record<LaneName, number>;

const OVER = ["empty", "example", "imported", "recording", "done", "stopped", "failed", "memory"];

/** The race that is shown, and what is known of its state. */
export class Store {
  run: string | null = null;
  lanes!: Record<LaneName, Lane>;
  summary: Summary | null = null;
  state = "empty";
  /** The message is of a later run, whose lanes are not shown yet. */
  pending = false;
  /** The run of the last message. */
  newest: string | null = null;
  wait: NonNullable<News["wait"]> | null = null;
  message = "";
  question: string | null = null;
  /** Changes whenever the data of the views changes. */
  version = "";
  parent = "";
  /** What a link needs to bring the race back; null if no link can, or the race is not over. */
  link: LinkSource | null = null;
  /** The last request was refused; the lanes are those of the run before. */
  refusal = false;
  /** The settings of the link that opened the page were refused: it brought nothing. */
  invalidLink = false;
  /** The page has asked for something and waits for its end. */
  held = false;

  constructor() {
    this.clear();
  }

  private clear(): void {
    this.lanes = { a: new Lane("a"), b: new Lane("b") };
    this.summary = null;
    this.state = "empty";
    this.pending = false;
    this.wait = null;
    this.message = "";
    this.question = null;
    this.version = "";
    this.parent = "";
    this.link = null;
  }

  /** Take a message; false if steps are missing, so that the run `newest` must be asked for. */
  take(news: News): boolean {
    if (news.run === null) {
      this.message = news.message ?? "";
      this.invalidLink ||= news.state === "invalid_link";
      if (news.state === "failed" || news.state === "invalid_link") this.refusal = true;
      if (news.state === "empty" && !this.run) this.state = "empty";
      return true;
    }
    if (this.ofEarlier(news)) return true;
    if (this.refusal) this.message = "";
    this.refusal = false;
    if (news.reset && !this.hasLanesOf(news)) this.clear();
    if (news.reset) this.run = news.run;
    this.newest = news.run;
    this.pending = news.run !== this.run;
    this.state = news.state;
    this.wait = news.wait ?? null;
    if (this.pending) return !Object.keys(news.lanes).length; // else its first message was missed
    return this.takeParts(news);
  }

  /** Whether a race that was asked for because steps were missing is still wanted. */
  awaits(whole: News): boolean {
    return this.live && whole.run !== null && whole.run === this.newest;
  }

  /**
   * The whole race, which was asked for because steps were missing, in the state that the page
   * knows: the server's answer calls a race that goes on running, also if it waits or is paused.
   */
  asKnown(whole: News): News {
    if (OVER.includes(whole.state)) return whole;
    return { ...whole, state: this.state, wait: this.wait ?? undefined };
  }

  /** The failure of the run of the last message, or of its recording, whose end was not told. */
  brokenOff(message: string): News {
    const run = this.newest;
    const state = this.live ? "failed" : "done"; // only whole runs are recorded
    return { run, state, message, reset: run !== this.run, lanes: {} };
  }

  /**
   * Whether the lanes that are shown are those of a whole race, so that they stay and the reader
   * with them: it is the run that went on, or a copy of the example, to which a recording is added.
   */
  private hasLanesOf(whole: News): boolean {
    if (whole.run === this.run) return true;
    if (whole.state !== "example" || this.state !== "example") return false;
    const copy = new Store();
    copy.takeLanes(whole);
    return copy.laneText() === this.laneText();
  }

  private laneText(): string {
    const { a, b } = this.lanes;
    return JSON.stringify([a, b].map(({ start, rows, at }) => [start, rows, at]));
  }

  /** Whether a message tells the end or the recording of a run that is no longer shown. */
  private ofEarlier(news: News): boolean {
    return !news.reset && news.run !== this.run && OVER.includes(news.state);
  }

  /** Take what a message says of the run that is shown; false as in `take`. */
  private takeParts(news: News): boolean {
    this.message = news.message ?? "";
    if (news.parent !== undefined) this.parent = news.parent;
    if (news.recorded !== undefined) this.version = news.recorded;
    const whole = this.takeLanes(news);
    if (news.summary) this.summary = news.summary;
    for (const lane of LANES) this.lanes[lane].apart = Boolean(this.summary?.apart);
    if (news.link !== undefined) this.link = news.link;
    if (news.question !== undefined) this.question = news.question;
    return whole;
  }

  /** Take the steps of a message and nothing else; false as in `take`. */
  takeLanes(news: News): boolean {
    let whole = true;
    for (const name of LANES) {
      const part = news.lanes[name];
      if (!part) continue;
      const lane = this.lanes[name];
      if (part.start && !lane.start) lane.begin(part.start);
      for (const [id, piece] of Object.entries(part.pieces ?? {})) lane.pieces.set(+id, piece);
      for (const row of part.rows ?? []) whole = lane.add(row) && whole;
      if (part.end) lane.end = part.end;
    }
    return whole;
  }

  /** The lanes that have started. */
  get started(): StartedLane[] {
    return LANES.map((name) => this.lanes[name]).filter(started);
  }

  /** Whether the run is going on. */
  get live(): boolean {
    return !OVER.includes(this.state);
  }

  /** Whether the run or its recording is going on. */
  get underway(): boolean {
    return this.live || this.state === "recording";
  }

  /** Whether nothing new can be asked for. */
  get busy(): boolean {
    return this.held || this.underway;
  }

  /** Whether the times of all lanes may be shown. */
  get timed(): boolean {
    return this.started.every((lane) => lane.timed);
  }

  /** Whether another engine decoded a lane, so that the race cannot be run again here. */
  get foreign(): boolean {
    return this.started.some((lane) => lane.foreign);
  }

  /** Whether the runs are whole and of this engine: the server records no others. */
  get recordable(): boolean {
    const whole = this.started.every((lane) => lane.end?.reason === "done" && !lane.foreign);
    return whole && this.started.length > 0;
  }

  /** Whether the run is over and its data can be read: their version comes with its last message. */
  get settled(): boolean {
    return !this.live && this.version !== "";
  }

  /** For each started lane, the value of every frame on the axis of alignment. */
  series(mode: Align): number[][] {
    if (mode === "time") return this.started.map((lane) => lane.clock);
    if (mode === "tokens") return this.started.map((lane) => lane.shown);
    return this.started.map((lane) => lane.clock.map((_, i) => lane.before + i));
  }

  /** The largest value on the axis of alignment. */
  extent(mode: Align): number {
    return Math.max(0, ...this.series(mode).map((values) => values[values.length - 1]));
  }

  /** All moments of the axis of alignment at which a frame begins, in order. */
  moments(mode: Align): Moment[] {
    return momentsOf(this.series(mode));
  }

  /** The frame of each lane at a moment of the axis of alignment. */
  frames(mode: Align, moment: Moment): Frames {
    const series = this.series(mode);
    const out = { a: 0, b: 0 };
    this.started.forEach((lane, i) => (out[lane.name] = frameAt(series[i], moment)));
    return out;
  }

  /** The last frame of each lane. */
  latest(): Frames {
    return { a: this.lanes.a.rows.length, b: this.lanes.b.rows.length };
  }
}
