import type { Spot } from "../inspect/cursor.ts";
import type { ViewName } from "../inspect/views/index.ts";

/** What the reader has to do before a lesson is marked as done. */
export type Action = "scrub" | "strip" | "threshold" | "choices" | "pin";

/** A race that the reader of a lesson can choose. */
export interface Choice {
  label: string;
  name: string;
}

/** A lesson (`inspector.lessons.lessons.described`). */
export interface Lesson {
  key: string;
  title: string;
  /** What the reader knows afterwards, and how many minutes it takes. */
  goal: string;
  minutes: number;
  do: string;
  see: string;
  ask: string;
  action: Action;
  view: ViewName;
  answer: "number" | "choice" | "pin";
  start: Omit<Spot, "position"> & { position?: number };
  choices: Choice[];
  /** The race that the lesson opens with. */
  lane_b: string;
}

/** The verdict on an answer. */
export interface Verdict {
  right: boolean;
  said: string;
}

/** What the reader has left in a lesson. */
export interface Place {
  cursor: Readonly<Spot>;
  held: boolean;
  view: ViewName;
  laneB: string;
}

/** How far the reader is with a lesson. */
export class Progress {
  done = false;
  right = false;
  /** Null until the lesson was shown and left. */
  place: Place | null = null;
  /** Whether the replay was at its start and, after that, at its end. */
  atStart = false;
  atEnd = false;
  /** Whether the threshold was at its lowest and at its highest. */
  low = false;
  high = false;
  /** Whether the cursor was moved. */
  moved = false;
  /** The races that were shown, and the kinds of attention that were chosen. */
  readonly races = new Set<string>();
  readonly attention = new Set<string>();

  /** Note the frame of lane A, which has `last` frames after the first; step 1 ends in frame 1. */
  noteFrame(frame: number, last: number): void {
    if (frame <= 1) this.atStart = true;
    else if (this.atStart && frame === last) this.atEnd = true;
  }

  /** Note the value of the threshold's slider. */
  noteThreshold({ value, min, max }: { value: string; min: string; max: string }): void {
    if (value === min) this.low = true;
    if (value === max) this.high = true;
  }

  /** Whether the reader has done what a lesson asks for; `held` tells whether a token is pinned. */
  complete(lesson: Pick<Lesson, "action" | "choices">, held: boolean): boolean {
    switch (lesson.action) {
      case "scrub":
        return this.atStart && this.atEnd;
      case "strip":
        return this.attention.size === 2;
      case "threshold":
        return this.low && this.high;
      case "choices":
        return lesson.choices.every(({ name }) => this.races.has(name));
      case "pin":
        return held && this.moved;
    }
  }
}

/** What is said to an answer: the explanation of a right one, or the hint for a wrong one. */
export function verdictWords({ right, said }: Verdict): string {
  return (right ? "Right. " : "Not yet. ") + said;
}

/** What an empty answer is asked for. */
export const ASKS: Record<Lesson["answer"], string> = {
  number: "Type a number first.",
  choice: "Choose a setting first.",
  pin: "Pin a cell first: click it, or move there and press Enter.",
};

/** The link to a lesson. */
export function lessonLink(key: string): string {
  return location.origin + location.pathname + "?lesson=" + key;
}

/** Name a lesson in the page's address if that names one already, so that a reload opens it. */
export function nameInAddress(key: string): void {
  const address = new URL(location.href);
  if (!address.searchParams.has("lesson")) return;
  address.searchParams.set("lesson", key);
  history.replaceState(history.state, "", address);
}
