/** What the view "Drift counts" shows: rows above a threshold, recomputed rows and the budget. */
import { number, percent } from "../base/format.ts";
import { Latest } from "../base/latest.ts";
import { at, type NdArray } from "./arrays.ts";
import type { DriftData } from "./codes.ts";
import { QUANTITY_NAMES } from "./quantities.ts";
import { codeUpTo, countTable, rowsDone, shareAbove, type CountTable } from "./tally.ts";
import type { Frame } from "./view.ts";
import type { Rules } from "./why.ts";

/** What the counts read of the rules of a run's cache. */
export type BudgetRules = Pick<Rules, "shift" | "due" | "facts" | "budget_of">;

/** Which rows are counted: a quantity of the document, a threshold, and all rows or the answer's. */
export interface CountChoice {
  quantity: string;
  /** The threshold of 1 − cosine. */
  limit: number;
  answer: boolean;
}

/** Shares of rows that were recomputed: by layer, in the steps that `name` says, and by step. */
export interface Recomputed {
  name: string;
  layers: number[];
  steps: number[];
}

/** The shares of rows that a method plans to recompute, by layer. */
export interface Budget {
  name: string;
  shares: number[];
  /** Which choice makes the budget comparable; empty if the current one does. */
  hint: string;
}

const RECOMPUTED = new Latest<NdArray, Recomputed>();

/** The threshold that a slider's exponent of ten stands for. */
export function limitOf(exponent: number): number {
  return Number((10 ** exponent).toPrecision(2));
}

function mean(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0) / Math.max(values.length, 1);
}

function isNumbers(value: unknown): value is number[] {
  return Array.isArray(value) && value.every((item) => typeof item === "number");
}

/** The counts of a run for one choice. `rules` is null if they are not recorded. */
export class DriftCounts {
  /** The index of the quantity in the documents. */
  readonly quantity: number;
  /** The name of the quantity. */
  readonly name: string;
  readonly limit: number;
  /** The highest drift code that is not above the threshold. */
  readonly code: number;
  /** The first position that counts. */
  readonly from: number;
  readonly table: CountTable;
  private readonly answer: boolean;

  constructor(
    readonly data: DriftData,
    private readonly frame: Frame,
    private readonly rules: BudgetRules | null,
    choice: CountChoice,
  ) {
    this.quantity = data.quantities.indexOf(choice.quantity);
    this.name = QUANTITY_NAMES[choice.quantity];
    this.limit = choice.limit;
    this.code = codeUpTo(choice.limit);
    this.answer = choice.answer;
    this.from = choice.answer ? Math.max(frame.prompt - (rules?.shift ?? 0), 0) : 0;
    this.table = countTable(data.drift, this.quantity, this.from);
  }

  /** Whether each step refreshes all rows of the answer or of the prompt; null without a budget. */
  private refreshes(): boolean[] | null {
    const { rules } = this;
    if (!rules?.facts?.budget) return null;
    const due = (step: number, region: number): boolean => at(rules.due, step, region) > 0;
    return Array.from(
      { length: this.frame.steps },
      (_, s) => due(s, 0) || (due(s, 1) && due(s, 2)),
    );
  }

  private comparedSteps(): { steps: number[]; name: string } {
    const refreshes = this.refreshes();
    const steps = Array.from({ length: this.frame.steps }, (_, s) => s).slice(1);
    const between = refreshes ? steps.filter((s) => !refreshes[s]) : [];
    return between.length
      ? { steps: between, name: "recomputed between refreshes" }
      : { steps, name: "recomputed after step 1" };
  }

  private recomputedRows(step: number, layer: number): number {
    const { frame, quantity, from } = this;
    const sites = frame.plan.shape[2];
    // The plan has no entry for the query, which is evaluated exactly where it is computed.
    if (quantity >= sites) return this.table.at(step, layer, this.code).seen;
    return rowsDone(frame.plan, from, frame.positions, [step, layer, quantity]);
  }

  /** The shares of rows that were recomputed. */
  recomputed(): Recomputed {
    const key = [this.quantity, this.from, Boolean(this.rules)].join();
    return RECOMPUTED.of(this.data.drift, key, () => this.countRecomputed());
  }

  private countRecomputed(): Recomputed {
    const { frame } = this;
    const rows = frame.positions - this.from;
    const done = Array.from({ length: frame.steps }, (_, s) =>
      Array.from({ length: frame.layers }, (_, l) => this.recomputedRows(s, l) / rows),
    );
    const { steps, name } = this.comparedSteps();
    const layers = Array.from({ length: frame.layers }, (_, l) =>
      mean(steps.map((s) => done[s][l])),
    );
    return { name, layers, steps: done.map(mean) };
  }

  /** The budget of the run's method; null if it has none. */
  budget(): Budget | null {
    const shares = this.rules?.facts?.budget;
    if (!isNumbers(shares) || shares.length !== this.frame.layers) return null;
    const all = this.rules?.budget_of === "all";
    const whose = all ? "all rows" : "the rows in the answer";
    const fits = ["attn", "ffn"].includes(this.data.quantities[this.quantity]);
    return {
      shares,
      name: `budget (share of ${whose}, between refreshes)`,
      hint:
        fits && this.answer !== all
          ? ""
          : ` The budget applies to the attention and feed-forward outputs of ${whose}: choose one of these quantities and these rows to compare.`,
    };
  }

  /** The sentence above the figures. */
  sentence(): string {
    const all = this.table.ofAll(this.code);
    const share = shareAbove(all);
    if (share === null) return "No row was evaluated twice.";
    const most = this.frame.layers > 1 ? this.table.mostDrifted(this.code) : null;
    return (
      `${number(all.above)} of ${number(all.seen)} evaluated rows (${percent(share)}) have a drift of ${this.name} above ${this.limit}, over all layers and steps.` +
      (most ? ` Layer ${most.layer + 1} drifts most (${percent(most.share)}).` : "") +
      (this.budget()?.hint ?? "")
    );
  }
}
