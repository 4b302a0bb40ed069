/** The documents of a batch (`engine.batch.service`), as the page receives them. */
import type { Wait } from "../race/messages.ts";

/** A setting and its figures (`engine.batch.results`); null where there is none. */
export interface Setting {
  name: string;
  title: string;
  runs: number;
  failed: number;
  pairs: number;
  known: number;
  right: number;
  agreement: number | null;
  interval: readonly [number, number] | null;
  same_answer: number | null;
  p: number | null;
  forwards: number | null;
  text_forwards: number | null;
  recomputed: number | null;
  ms: number | null;
  speed_up: number | null;
  text_speed_up: number | null;
  tokens_per_s: number | null;
  recorded: number;
  recording_problem: string;
}

/** A message: the progress of a batch, and its settings if they were summed up. */
export interface BatchProgress {
  batch: string;
  state: string;
  message: string;
  done: number;
  total: number;
  seconds_left: number | null;
  /** What it waits for; the states are those of a race. */
  wait?: Wait & { state: string };
  step?: number;
  settings?: Setting[];
  record?: string;
}

/** A finished run of the table. */
export interface Row {
  prompt: number;
  setting: number;
  question: string;
  before: number;
  known_answer: string | null;
  reason: string;
  message: string;
  text: string;
  right: boolean | null;
  forwards: number;
  text_forwards: number;
  ms: number;
  tokens: number;
  recomputed: number;
  agreement: number | null;
}

/** Mean and standard deviation over runs, and their number, of arrays of one shape. */
export interface Spread<T> {
  mean: T;
  sd: T;
  runs: unknown;
}

type Known = number | null;

/** The aggregates of a setting (`engine.batch.aggregates`); the arrays are missing without runs. */
export interface Aggregate {
  name: string;
  problem: string;
  runs: number;
  layers: number;
  quantities: string[];
  sites: string[];
  kinds: string[];
  parts: string[];
  thresholds: number[];
  shares: number[];
  quantiles: Known[][][];
  committed: number[];
  accepted: number[];
  drift?: Spread<Known[][]>;
  above?: Spread<Known[][][]>;
  similarity?: Spread<Known[][][][]>;
  error?: Spread<Known[][]>;
  tv?: Spread<Known>;
  flips?: Spread<Known>;
  tokens?: Spread<Known>;
}

/** The prompts of a table: what each setting made of them, by setting. */
export interface PromptRow {
  prompt: number;
  question: string;
  before: number;
  answer: string | null;
  runs: (Row | undefined)[];
}

/** The runs by prompt, in the order of the prompts. */
export function byPrompt(rows: readonly Row[]): PromptRow[] {
  const found: PromptRow[] = [];
  for (const row of rows) {
    const { prompt, question, before, known_answer: answer } = row;
    found[prompt] ??= { prompt, question, before, answer, runs: [] };
    found[prompt].runs[row.setting] = row;
  }
  return found.filter(Boolean);
}

/** Whether nothing of a batch is being computed. */
export function isOver(state: string): boolean {
  return state !== "running" && state !== "new";
}
