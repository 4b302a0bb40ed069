/** What the view "Drift counts" shows: rows above a threshold, recomputed rows and the budget. */
import { number, percent } from "../base/format.ts";
import { OwnerCache } from "../base/owner_cache.ts";
import { at, type NdArray } from "./arrays.ts";
import type { RowsDone } from "./plans.ts";
import { QUANTITY_NAMES, rowsWhere } from "./quantities.ts";
import { SITES } from "./sites.ts";
import { CountTable, shareAbove } from "./tally.ts";
import { isWhole, type Frame } from "./view.ts";
import type { Rules } from "./why.ts";

/** What the counts read of the rules of a run's cache. */
export type BudgetRules = Pick<Rules, "shift" | "due" | "facts" | "budget_of">;

/** Which rows are counted: a quantity, a threshold, and all rows or the answer's. */
export interface CountChoice {
  quantity: string;
  /** The threshold of 1 − cosine. */
  limit: number;
  answer: boolean;
}

/** Rows of the choice by step and layer: evaluated ones, and those above the threshold. */
export interface CountData extends RowsDone {
  seen: NdArray;
  above: NdArray;
}

/** The first position that counts. */
export function firstCounted(
  frame: Pick<Frame, "prompt">,
  rules: Pick<BudgetRules, "shift"> | null,
  answer: boolean,
): number {
  return answer ? Math.max(frame.prompt - (rules?.shift ?? 0), 0) : 0;
}

/**
 * Shares of rows that were recomputed: by layer, in the steps that `name` says, and by step, null
 * in a step that attends to none of the rows. A run of one step has no shares by layer: it has
 * nothing to reuse.
 */
export interface Recomputed {
  name: string;
  layers: number[] | null;
  steps: (number | null)[];
}

/** The shares of rows that a method plans to recompute, by layer. */
export interface Budget {
  name: string;
  shares: number[];
  /** Which choice makes the budget comparable; empty if the current one does. */
  hint: string;
}

const TABLES = new OwnerCache<NdArray, CountTable>();
const RECOMPUTED = new OwnerCache<NdArray, Recomputed>();

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
  readonly quantity: string;
  /** The name of the quantity. */
  readonly name: string;
  readonly limit: number;
  /** What follows "rows": which of them count. */
  readonly where: string;
  /** The first position that counts. */
  readonly from: number;
  readonly table: CountTable;
  private readonly answer: boolean;

  constructor(
    private readonly data: CountData,
    private readonly frame: Frame,
    private readonly rules: BudgetRules | null,
    choice: CountChoice,
  ) {
    this.quantity = choice.quantity;
    this.name = QUANTITY_NAMES[choice.quantity];
    this.limit = choice.limit;
    this.answer = choice.answer;
    this.where = rowsWhere(choice.answer);
    this.from = firstCounted(frame, rules, choice.answer);
    this.table = TABLES.of(data.above, "", () => new CountTable(data.seen, data.above));
  }

  /** Whether each step refreshes all rows of the answer or of the prompt; null without a budget. */
  private refreshes(): boolean[] | null {
    const { rules } = this;
    if (!rules?.facts?.budget) return null;
    const due = (step: number, region: number): boolean => at(rules.due, step, region) > 0;
    const prompt = this.frame.prompt > rules.shift; // an empty region is always due
    return Array.from(
      { length: this.frame.steps },
      (_, s) => (prompt && due(s, 0)) || (due(s, 1) && due(s, 2)),
    );
  }

  private comparedSteps(): { steps: number[]; name: string } {
    const refreshes = this.refreshes();
    const steps = Array.from({ length: this.frame.steps }, (_, s) => s).slice(1);
    const between = refreshes ? steps.filter((s) => !refreshes[s]) : [];
    return between.length
      ? { steps: between, name: "recomputed between refreshes" }
      : { steps, name: `recomputed after step ${this.frame.first + 1}` };
  }

  /** The shares of rows that were recomputed; null for the query, which no plan has. */
  recomputed(): Recomputed | null {
    const site = SITES.indexOf(this.quantity);
    const key = [site, Boolean(this.rules)].join();
    return site < 0 ? null : RECOMPUTED.of(this.data.done, key, () => this.countRecomputed(site));
  }

  private countRecomputed(site: number): Recomputed {
    const { frame } = this;
    const rows = Array.from(frame.sight.values, (sight) => Math.max(sight - this.from, 0));
    const done = rows.map((most, s) =>
      Array.from({ length: frame.layers }, (_, l) => at(this.data.done, s, l, site) / most),
    );
    const compared = this.comparedSteps();
    const steps = compared.steps.filter((s) => rows[s] > 0);
    const inLayer = (l: number): number => mean(steps.map((s) => done[s][l]));
    const layers = Array.from({ length: frame.layers }, (_, l) => inLayer(l));
    return {
      name: compared.name,
      layers: steps.length ? layers : null,
      steps: done.map((shares, s) => (rows[s] > 0 ? mean(shares) : null)),
    };
  }

  /** The budget of the run's method; null if it has none. */
  budget(): Budget | null {
    const shares = this.rules?.facts?.budget;
    if (!isNumbers(shares) || shares.length !== this.frame.layers) return null;
    const all = this.rules?.budget_of === "all";
    const whose = all ? "all rows" : "the rows in the answer";
    const fits = ["attn", "ffn"].includes(this.quantity);
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
    const all = this.table.ofAll();
    const share = shareAbove(all);
    const recorded = isWhole(this.frame, this.quantity) ? "" : "recorded ";
    if (share === null) return `No ${recorded}row${this.where} was evaluated twice.`;
    const most = this.frame.layers > 1 ? this.table.mostDrifted() : null;
    return (
      `${number(all.above)} of ${number(all.seen)} evaluated rows${this.where} (${percent(share)}) have a drift of ${this.name} above ${this.limit}, over all ${recorded}layers and steps.` +
      (most ? ` Layer ${most.layer + 1} drifts most (${percent(most.share)}).` : "") +
      (this.budget()?.hint ?? "")
    );
  }
}
