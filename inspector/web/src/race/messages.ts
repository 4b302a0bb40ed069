/** The messages of the server (`inspector.page_data.messages`). */
import type { Piece } from "../base/token_text.ts";

export type LaneName = "a" | "b";

/** The two lanes, in the order of the page. */
export const LANES: readonly LaneName[] = ["a", "b"];

/** An image of the prompt (`engine.core.events.RunStarted.images`); sizes are [columns, rows]. */
export interface ImageMessage {
  name: string;
  width: number;
  height: number;
  mode: string;
  first: number;
  rows: number;
  crops: number;
  grid: [number, number];
  map: [number, number];
}

/** A lane before its first step. */
export interface LaneStart {
  title: string;
  /** The steps of the runs that it continues; 0 unless it is a branch. */
  before: number;
  /** The ids that a branch changed first, by index (-1: masked again); null for any other run. */
  branch: Record<string, number> | null;
  prompt: number[];
  /** The images of the prompt; missing without any. */
  images?: readonly ImageMessage[];
  /** Ids of the answer tokens that are known before the first step, by index. */
  canvas: Record<string, number>;
  /** Those that the settings give, by index; the others come from the run of a branch. */
  given: readonly number[];
  /** Positions after the prompt. */
  length: number;
  /** Those of the answer, without a suffix and the rest of the last block. */
  answer: number;
  block: number;
  /** Positions of the first block that hold tokens of the prompt; none if left out. */
  shared?: number;
  record: string;
  mask: number | null;
  stop: number[];
  model: string;
  /** A digest: ids of two lanes mean the same tokens if it is the same. Empty in older files. */
  vocabulary: string;
  environment: string;
  memory: string;
  /** What a run of another engine does not know; empty for a run of this one. */
  lacks: readonly Lack[];
}

/** What is unknown of a run: rows, forwards and FLOPs of its steps, or their times. */
export type Lack = "costs" | "times";

/**
 * One step: number, block, kind, rows, forwards, masks left, milliseconds, and the committed
 * tokens as index in the answer, id and confidence in thousandths (-1: unknown).
 */
export type RowMessage = [number, number, number, number, number, number, number, number[]];

/** The end of a lane. */
export interface LaneEnd {
  reason: string;
  message: string;
  text: string;
  metrics: Record<string, number | null | undefined>;
}

/** News of one lane. */
export interface LaneNews {
  start?: LaneStart;
  rows?: RowMessage[];
  pieces?: Record<string, Piece>;
  end?: LaneEnd;
}

/** The summary of a finished race; a field is null if the race has no data for it. */
export interface Summary {
  speedup: number | null;
  text_speedup: number | null;
  forwards: (number | null)[];
  text_forwards: (number | null)[];
  end_of_text: string[];
  expected: string | null;
  /** The numbers that were answered; texts if they are too large for a number. */
  numbers: (number | string | null)[];
  right: (boolean | null)[];
  agreement: number | null;
  first_divergence: number | null;
  same_text: boolean | null;
  same_answer: boolean | null;
  /** Why the tokens of the lanes are not compared; empty if they are. */
  apart: string;
  /** Whether equal ids are equal tokens in both lanes. */
  same_vocabulary: boolean;
}

/** Progress of something that is waited for: bytes loaded, or runs in a queue. */
export type Wait =
  | { ahead: number; seconds: number | null }
  | { ahead?: undefined; done: number; total: number; unit: string; what: string };

/** What a link needs to bring a race back (`inspector.page_data.links`). */
export interface LinkSource {
  /** The settings of both lanes; for a branch, those of the first race. */
  query: string;
  /** The branches that lead from there to this race. */
  branches: string[];
  /** The name of the bundled recorded run in lane B; empty if it is none. */
  recorded: string;
}

/** A message: new steps, a whole race, or a notice without a run. */
export interface News {
  run: string | null;
  state: string;
  message?: string;
  reset?: boolean;
  /** What the run waits for; of a recording with its `state`, since `state` is `recording` then. */
  wait?: Wait & { state?: string };
  parent?: string;
  recorded?: string;
  summary?: Summary;
  question?: string | null;
  link?: LinkSource | null;
  lanes: Partial<Record<LaneName, LaneNews>>;
}
