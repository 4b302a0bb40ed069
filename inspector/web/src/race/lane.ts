import { joined, visible, type Piece } from "../base/token_text.ts";
import { UNTIMED } from "../inspect/view.ts";
import type { ImageMessage, LaneEnd, LaneName, LaneStart, RowMessage } from "./messages.ts";

/** One step of a lane; `places` are the answer tokens that it committed. */
export interface Row {
  step: number;
  block: number;
  kind: number;
  rows: number;
  forwards: number;
  left: number;
  ms: number;
  places: number[];
}

/**
 * A committed token: id, index of its row (-1: known before the first one), and confidence (null:
 * unknown).
 */
export interface Token {
  id: number;
  row: number;
  sure: number | null;
  fixed: boolean;
}

const NO_IMAGES: readonly ImageMessage[] = [];

/** The steps of a lane so far. A frame is the state after that many steps. */
export class Lane {
  start: LaneStart | null = null;
  end: LaneEnd | null = null;
  readonly rows: Row[] = [];
  /** Milliseconds up to each frame. */
  readonly clock: number[] = [0];
  /** Tokens known in each frame, those that are known before the first step included. */
  readonly shown: number[] = [0];
  /** Forwards up to each frame. */
  readonly forwards: number[] = [0];
  /** The final token of each place of the answer. */
  at: (Token | null)[] = [];
  readonly pieces = new Map<number, Piece>();
  stops = new Set<number>();
  /** Whether the lanes of the race are not compared (`Summary.apart` says why). */
  apart = false;

  constructor(readonly name: LaneName) {}

  /** Take the facts that are known before the first step. */
  begin(start: LaneStart): void {
    this.start = { ...start, title: visible(start.title) };
    this.stops = new Set(start.stop);
    this.at = new Array<Token | null>(start.length).fill(null);
    for (const [place, id] of Object.entries(start.canvas)) {
      this.at[Number(place)] = { id, row: -1, sure: null, fixed: true };
    }
    this.shown[0] = Object.keys(start.canvas).length;
  }

  /** The steps of the runs that it continues; 0 unless it is a branch. */
  get before(): number {
    return this.start?.before ?? 0;
  }

  /** Whether another engine decoded it, so that its rows, forwards and FLOPs are not known. */
  get foreign(): boolean {
    return this.start?.lacks.includes("costs") ?? false;
  }

  /** Whether its times may be shown: they are known, and without the time of recording. */
  get timed(): boolean {
    if (!this.start) return false;
    return !UNTIMED.includes(this.start.record) && !this.start.lacks.includes("times");
  }

  /** The images of the prompt, in order. */
  get images(): readonly ImageMessage[] {
    return this.start?.images ?? NO_IMAGES;
  }

  /** The number of the step of a row, from 1, counted with the steps before a branch. */
  stepNumber(row: number): number {
    return this.before + row + 1;
  }

  /** Whether the settings give a token. */
  given(place: number): boolean {
    return this.start?.given.includes(place) ?? false;
  }

  /** Whether a branch from a frame can mask a token again: it is known, and not given. */
  canMaskAgain(place: number, frame: number): boolean {
    return this.token(place, frame) !== null && !this.given(place);
  }

  /** How a token became known that was known before the first step. */
  knownWords(place: number): string {
    const { branch } = this.start ?? {};
    if (!branch || this.given(place)) return "given";
    return place in branch ? "set by hand" : `known before step ${this.before + 1}`;
  }

  /** Append a step; false if a step before it is missing. A known step is ignored. */
  add(row: RowMessage): boolean {
    const [step, block, kind, rows, forwards, left, ms, commits] = row;
    if (step < this.rows.length) return true;
    if (step > this.rows.length || !this.start) return false;
    const places: number[] = [];
    for (let i = 0; i < commits.length; i += 3) {
      const sure = commits[i + 2] < 0 ? null : commits[i + 2] / 1000;
      this.at[commits[i]] = { id: commits[i + 1], row: step, sure, fixed: false };
      places.push(commits[i]);
    }
    this.rows.push({ step, block, kind, rows, forwards, left, ms, places });
    this.clock.push(this.clock[step] + ms);
    this.shown.push(this.shown[step] + places.length);
    this.forwards.push(this.forwards[step] + forwards);
    return true;
  }

  /** The token at a place in a frame; null if it is masked. */
  token(place: number, frame: number): Token | null {
    const found = this.at[place];
    return found && found.row < frame ? found : null;
  }

  /** The place of the first end-of-text token in a frame; the answer's length if there is none. */
  firstEnd(frame: number): number {
    for (let i = 0; i < this.at.length; i++) {
      const token = this.token(i, frame);
      if (token && this.stops.has(token.id)) return i;
    }
    return this.at.length;
  }

  /** The decoded tokens of the answer before the end of the text in a frame. */
  tokensBeforeEnd(frame: number): number {
    const end = Math.min(this.firstEnd(frame), this.start?.answer ?? 0);
    let count = 0;
    for (let i = 0; i < end; i++) if (this.token(i, frame)?.fixed === false) count++;
    return count;
  }

  /** The answer in a frame: texts between masks, each mask as null. */
  text(frame: number): (string | null)[] {
    let last = Math.min(this.firstEnd(frame), this.start?.answer ?? 0) - 1;
    while (last >= 0 && !this.token(last, frame)) last--;
    const parts: (string | null)[] = [];
    let known: (Piece | undefined)[] = [];
    for (let i = 0; i <= last; i++) {
      const token = this.token(i, frame);
      if (token) {
        known.push(this.pieces.get(token.id));
        continue;
      }
      if (known.length) parts.push(joined(known));
      known = [];
      parts.push(null);
    }
    if (known.length) parts.push(joined(known));
    return parts;
  }

  /** The masks left in a frame. */
  masksLeft(frame: number): number {
    if (frame) return this.rows[frame - 1].left;
    return this.at.filter((token) => !token?.fixed).length;
  }
}

/** A lane that has started. */
export type StartedLane = Lane & { start: LaneStart };

/** Whether a lane has started. */
export function started(lane: Lane): lane is StartedLane {
  return lane.start !== null;
}

/** Whether the tokens of a lane are compared with those of another one, which may not have started. */
export function comparable(lane: StartedLane, other: Lane): boolean {
  return !lane.apart && other.start !== null && sameVocabulary(lane.start, other.start);
}

/** Whether equal ids are equal tokens in two lanes, as far as their runs say. */
export function sameVocabulary(a: LaneStart, b: LaneStart): boolean {
  return a.vocabulary === b.vocabulary || !a.vocabulary || !b.vocabulary;
}
