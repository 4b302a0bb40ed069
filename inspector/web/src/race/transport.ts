import { isShortcut, part, write } from "../base/dom.ts";
import { duration, plural } from "../base/format.ts";
import type { Lane } from "./lane.ts";
import { framesAt, momentOf, moved, type Moment } from "./moments.ts";
import type { Align, Frames, Store } from "./store.ts";

/** How far the replay goes in a millisecond, in units of the axis of alignment. */
const RATES: Record<Align, number> = { time: 1, step: 0.012, tokens: 0.03 };

/** The most that the replay goes on at a drawing, in milliseconds: a hidden tab draws nothing. */
const LONGEST_MS = 1000;

const FORWARDS = ["ArrowRight", "ArrowUp"];
const BACKWARDS = ["ArrowLeft", "ArrowDown"];

function isAlign(text: string): text is Align {
  return Object.hasOwn(RATES, text);
}

/** A value of the axis of alignment as text. */
export function alignWords(mode: Align, value: number): string {
  if (mode === "time") return duration(value);
  const whole = Math.floor(value + 1e-6);
  return mode === "step" ? plural(whole, "step") : plural(whole, "token");
}

/** The replay bar: which frame of each lane is shown. */
export class Transport {
  /** The alignment that the reader chose, also while a race without times cannot have it. */
  private wanted: Align = "time";
  /** Whether the last frame is shown, also when more steps come. */
  follow = true;
  playing = false;
  private moment: Moment = { value: 0, later: Infinity };
  private readonly scrub: HTMLInputElement;
  private readonly playKey: HTMLButtonElement;
  private readonly where: HTMLElement;
  private readonly choice: HTMLSelectElement;
  private readonly speed: HTMLSelectElement;

  constructor(
    root: HTMLElement,
    private readonly store: Store,
    private readonly onMove: () => void,
  ) {
    this.scrub = part(root, "[data-scrub]");
    this.playKey = part(root, "[data-play]");
    this.where = part(root, "[data-where]");
    this.choice = part(root, "[data-align]");
    this.speed = part(root, "[data-speed]");
    this.scrub.addEventListener("input", () => this.go(+this.scrub.value));
    this.scrub.addEventListener("keydown", (event) => this.key(event));
    this.playKey.addEventListener("click", () => this.toggle());
    this.choice.addEventListener("change", () => {
      if (isAlign(this.choice.value)) this.align(this.choice.value);
    });
  }

  /** How the lanes are aligned; without the times of both, they cannot be aligned by time. */
  get mode(): Align {
    return this.wanted === "time" && !this.store.timed ? "step" : this.wanted;
  }

  /** The frame of each lane that is shown. */
  frames(): Frames {
    return this.follow ? this.store.latest() : this.store.frames(this.mode, this.moment);
  }

  /** Draw the bar. */
  refresh(): void {
    this.drawChoice();
    const extent = this.store.extent(this.mode);
    if (this.follow) this.moment = { value: extent, later: Infinity };
    if (this.moment.value > extent) this.moment = { value: extent, later: Infinity };
    this.scrub.max = String(Math.max(extent, 1e-9));
    this.scrub.value = String(this.moment.value);
    this.scrub.disabled = this.playKey.disabled = extent === 0;
    write(this.playKey, this.playing ? "⏸ Pause" : "▶ Replay");
    const text =
      alignWords(this.mode, this.moment.value) +
      " of " +
      alignWords(this.mode, extent) +
      this.steps();
    write(this.where, text);
    this.scrub.setAttribute("aria-valuetext", text);
  }

  /** Draw the list of alignments. On another axis than before, the end is shown. */
  private drawChoice(): void {
    part<HTMLOptionElement>(this.choice, '[value="time"]').disabled = !this.store.timed;
    if (this.choice.value === this.mode) return;
    this.choice.value = this.mode;
    this.reset();
  }

  /** How many steps the shown frame is after the first one of the same value; empty for none. */
  private steps(): string {
    if (this.follow || this.playing) return "";
    const last = framesAt(this.store.series(this.mode), this.moment.value) - 1;
    const later = Math.min(this.moment.later, last);
    return later ? ", " + plural(later, "step") + " later" : "";
  }

  /** Go to a value of the axis; 0 is the state before the first step. */
  go(value: number): void {
    const extent = this.store.extent(this.mode);
    const within = Math.min(Math.max(value, 0), extent);
    this.turnTo({ value: within, later: within > 0 ? Infinity : 0 });
  }

  private turnTo(moment: Moment): void {
    const extent = this.store.extent(this.mode);
    const last = framesAt(this.store.series(this.mode), extent) - 1;
    this.moment = moment;
    this.follow = moment.value >= extent && moment.later >= last && !this.playing;
    this.onMove();
  }

  private align(mode: Align): void {
    this.playing = false;
    const before = this.frames();
    this.wanted = mode;
    const series = this.store.series(mode);
    const places = this.store.started.map((lane, i) => momentOf(series[i], before[lane.name]));
    const furthest = Math.max(0, ...places.map(({ value }) => value));
    const lead = places.find(({ value }) => value === furthest);
    if (!this.follow && lead) this.moment = lead;
    this.onMove();
  }

  private key(event: KeyboardEvent): void {
    if (isShortcut(event)) return;
    const count = event.shiftKey ? 10 : 1;
    if (FORWARDS.includes(event.key)) this.move(count);
    else if (BACKWARDS.includes(event.key)) this.move(-count);
    else if (event.key === "Home") this.go(0);
    else if (event.key === "End") this.go(this.store.extent(this.mode));
    else if (event.key === " ") this.toggle();
    else return;
    event.preventDefault();
  }

  private move(count: number): void {
    this.hold();
    this.turnTo(moved(this.store.moments(this.mode), this.moment, count));
  }

  private toggle(): void {
    if (this.playing) {
      this.hold();
      return this.onMove();
    }
    const atEnd = this.follow || this.moment.value >= this.store.extent(this.mode);
    if (atEnd) this.moment = { value: 0, later: 0 };
    this.playing = true;
    this.follow = false;
    this.onMove();
    this.play(performance.now());
  }

  private play(before: number): void {
    requestAnimationFrame((now) => {
      if (!this.playing) return;
      const speed = +this.speed.value * RATES[this.mode];
      const value = this.moment.value + Math.min(Math.max(now - before, 0), LONGEST_MS) * speed;
      this.moment = { value, later: Infinity };
      if (value >= this.store.extent(this.mode)) {
        this.playing = false;
        this.follow = true;
      }
      this.onMove();
      if (this.playing) this.play(now);
    });
  }

  private hold(): void {
    this.playing = false;
    this.refresh();
  }

  /** Show a frame of a lane. */
  show(lane: Lane, frame: number): void {
    this.hold();
    const place = this.store.started.findIndex(({ name }) => name === lane.name);
    const last = Math.min(frame, lane.rows.length);
    if (place >= 0) this.turnTo(momentOf(this.store.series(this.mode)[place], last));
  }

  /** Show the end, for instance of another run. */
  reset(): void {
    this.playing = false;
    this.follow = true;
  }
}
