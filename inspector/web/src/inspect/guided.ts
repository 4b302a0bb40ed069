/** The guided steps of a run (`inspector.views.guider`). */
import type { Piece } from "../base/token_text.ts";
import type { NdArray, Values } from "./arrays.ts";
import type { TimeData } from "./step_costs.ts";

/** The guider's verdict on a drafted token. */
export type Verdict =
  "accepted" | "mismatch" | "agreed" | "refused" | "fallback" | "stop" | "filled" | "untold";

/** The knobs of the guided unmasker. */
export interface GuiderRule {
  guider: string;
  rule: string;
  k: number;
  tau: number;
  fallback: string;
}

/** What is known of the guider; an unknown name is empty, an unknown size null. */
export interface GuiderAbout {
  name: string;
  parameters: number | null;
  /** Whether its vocabulary is that of the diffusion model. */
  shared: boolean;
}

/** Sums and shares over all steps; a share is null if its denominator is 0. */
export interface GuiderNumbers {
  drafted: number;
  accepted: number;
  tokens: number;
  straddle_loss: number;
  forwards: number;
  fed: number;
  prefilled: number;
  top1: number | null;
  top2: number | null;
  top5: number | null;
  fallback_rate: number | null;
  nll: number | null;
  kl: number | null;
  per_forward: number | null;
  per_guider_forward: number | null;
  flops_share: number | null;
  prefill_share: number | null;
}

type List<V extends Values = Float32Array> = NdArray<V>;

/** A run with a guider, of S steps. */
export interface Guided {
  asked: true;
  about: GuiderAbout;
  rule: GuiderRule;
  /** The verdicts that codes stand for. */
  names: readonly Verdict[];
  /** Whether the verdict on each token was recorded. */
  recorded: boolean;
  /** Tokens drafted and accepted in each step, and the mean of the accepted ones so far [S]. */
  drafted: List<Int32Array>;
  accepted: List<Int32Array>;
  /** 1 where the fallback's token was committed. */
  fell_back: List<Int32Array>;
  /** NaN before the first draft. */
  mean: List;
  /** Steps by the number k of tokens accepted, and the share of steps with k >= j. */
  histogram: List<Int32Array>;
  survival: List;
  /** Tokens per step that drafts so far, and those that offset the guider's FLOPs [S]. */
  reached: List;
  needed: List;
  numbers: GuiderNumbers;
}

/** The code of the verdict on an answer token in a step; NO_DATA if it was not drafted. */
export type VerdictCode = (step: number, place: number) => number;

/** What a step drafted: J tokens, which H tokens of the guider spell. */
export interface GuidedStep {
  /** Texts of tokens of the diffusion model, and of the guider, by id. */
  pieces: Partial<Record<string, Piece>>;
  guider_pieces: Partial<Record<string, Piece>>;
  /** [J, 2]: the first and last guider token that spell a drafted one; -1 if not checked. */
  span: List<Int32Array>;
  /** [J]: position, id, both probabilities (the guider's NaN if unknown) and agreement. */
  draft_position: NdArray;
  draft_id: NdArray;
  draft_p_f: List;
  draft_p_g: List;
  draft_ok: NdArray;
  /** [H]: id, probability, agreement, rank, and the guider's first choice with its probability. */
  guider_id: NdArray;
  guider_p: List;
  guider_ok: NdArray;
  guider_rank: NdArray;
  guider_top: NdArray;
  guider_top_p: List;
}

/** The P tokens drafted in all steps, or in every n-th of the steps that draft tokens. */
export interface GuidedPoints {
  /** n; 1: all. */
  every: number;
  /** [P]: step, position, both probabilities (the guider's NaN if unknown) and verdict. */
  draft_step: NdArray;
  draft_position: NdArray;
  draft_p_f: List;
  draft_p_g: List;
  verdict: NdArray;
}

/** What is known of a run, with or without a guider. */
export type GuiderData = Guided | { asked: false };

/** What the views of the guider read of the times of a run. */
export type GuiderTimes = Pick<TimeData, "forward_ms" | "decide_ms" | "guider_ms" | "needed">;
