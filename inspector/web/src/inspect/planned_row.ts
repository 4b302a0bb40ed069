import { percent, plural } from "../base/format.ts";
import { at, type NdArray } from "./arrays.ts";
import { DRIFT, NO_DATA } from "./codes.ts";
import { driftCode, isDone, siteDone, type PlanBits, type TokenRows } from "./plans.ts";
import { SITES } from "./sites.ts";
import type { Frame } from "./view.ts";

/** What the planned row needs of the reasons of a run's cache (`Rules`). */
export interface PlanFacts {
  /** The rows by which a row precedes the token that it predicts: 0 or 1. */
  shift: number;
  /** 1 where a step refreshes the whole prompt, block or rest [steps, 3]. */
  due: NdArray;
  /** The policy's quantities, each a list with a value for every layer. */
  facts?: Readonly<Record<string, unknown>>;
}

/** What was recorded of a row in all steps, and of all rows in its step. */
export interface RowFacts {
  token: TokenRows;
  plan: PlanBits;
  /** Drift codes of a quantity of all rows [layers, positions]; null if they are not known. */
  drifts: (quantity: string) => NdArray | null;
}

/** A row in one step and one layer, all counted from 0. */
export interface RowCell {
  step: number;
  layer: number;
  position: number;
}

/** The regions that are refreshed as a whole. */
export const REGIONS: readonly string[] = ["prompt", "block", "rest"];

/** The rank of a code, the largest first; codes that are equal share their ranks. */
function rankWords(codes: readonly number[], own: number): string {
  const above = codes.filter((code) => code > own).length;
  const equal = codes.filter((code) => code === own).length;
  const ranks = equal > 1 ? `${above + 1} to ${above + equal}` : String(above + 1);
  return `rank ${ranks} of ${codes.length}`;
}

/** A drift with one or two digits, also where it is small. */
function smallDrift(code: number): string {
  if (code === 0) return "less than 0.00002";
  return DRIFT[code] < 1e-4 ? DRIFT[code].toFixed(5) : DRIFT[code].toPrecision(2);
}

/** What the plans of a run say of one row in one step and layer. */
export class PlannedRow {
  readonly step: number;
  readonly layer: number;
  readonly position: number;
  /** Whether K, V, attention output and feed-forward output were computed. */
  readonly computed: readonly boolean[];
  /** The region of the row, an index of `REGIONS`. */
  readonly region: number;
  /** The first row of the answer. */
  private readonly answer: number;
  /** The row after the last one of the current block. */
  private readonly blockEnd: number;

  constructor(
    readonly frame: Frame,
    private readonly rules: PlanFacts,
    private readonly facts: RowFacts,
    { step, layer, position }: RowCell,
  ) {
    this.step = step;
    this.layer = layer;
    this.position = position;
    this.computed = SITES.map((_, site) => siteDone(facts.token, step, layer, site));
    const start = frame.prompt - (frame.shared ?? 0) + frame.block * frame.blocks.values[step];
    this.answer = frame.prompt - rules.shift;
    this.blockEnd = start + frame.block;
    const inBlock = position >= start - rules.shift && position < this.blockEnd;
    if (inBlock) this.region = 1;
    else this.region = position < this.answer ? 0 : 2;
  }

  /** Whether any of the four values of the row is computed in a step, in this layer. */
  private doneAny(step: number): boolean {
    return at(this.facts.token.sites, step, this.layer) > 0;
  }

  /** Whether a value of a position, or any of them, is computed in the step of the row. */
  private doneHere(position: number, site: number | null): boolean {
    const { plan } = this.facts;
    if (site !== null) return isDone(plan, this.layer, site, position);
    return SITES.some((_, one) => isDone(plan, this.layer, one, position));
  }

  /** Whether every row that entered the step was computed, at every site of every layer. */
  get everyRow(): boolean {
    const { shape, values } = this.facts.plan.bits;
    return values.every((byte, i) => byte === values[i % shape[2]]);
  }

  /** Whether the row comes after the current block. */
  get afterBlock(): boolean {
    return this.position >= this.blockEnd;
  }

  /** The region of a name (`answer`: the block); that of the row for an empty name. */
  private regionOf(name: string): number {
    if (!name) return this.region;
    return name === "answer" ? 1 : REGIONS.indexOf(name);
  }

  private refreshedIn(step: number, region: number): boolean {
    return region >= 0 && Boolean(at(this.rules.due, step, region));
  }

  /** Whether this step refreshes a region, that of the row for an empty name. */
  refreshed(region: string): boolean {
    return this.refreshedIn(this.step, this.regionOf(region));
  }

  /** The value of a fact in this layer; null if it has none. */
  fact(name: string): number | null {
    const { facts } = this.rules;
    const values = facts && Object.hasOwn(facts, name) ? facts[name] : null;
    const value: unknown = Array.isArray(values) ? values[this.layer] : null;
    return typeof value === "number" ? value : null;
  }

  /** The next step, forwards (1) or backwards (-1), for which a condition holds; -1 for none. */
  private seek(by: 1 | -1, holds: (step: number) => boolean): number {
    for (let step = this.step + by; step >= 0 && step < this.frame.steps; step += by)
      if (holds(step)) return step;
    return -1;
  }

  /** Whether the row is recomputed in a later step. */
  get again(): boolean {
    return this.seek(1, (step) => this.doneAny(step)) >= 0;
  }

  private times(holds: (step: number) => boolean): string {
    const [before, after] = [this.seek(-1, holds), this.seek(1, holds)];
    const last =
      before < 0 ? "not computed before" : `last at step ${this.frame.first + before + 1}`;
    return (
      last +
      ", " +
      (after < 0 ? "not again in this run" : `next at step ${this.frame.first + after + 1}`)
    );
  }

  /** The last and the next step that compute the row in this layer. */
  computedTimes(): string {
    return this.times((step) => this.doneAny(step));
  }

  /** The last and the next step that refresh a region, that of the row for an empty name. */
  refreshTimes(region: string): string {
    return this.times((step) => this.refreshedIn(step, this.regionOf(region)));
  }

  /** The rows computed at a site, at any site if it is empty, of all rows or of the answer's. */
  share(site: string, area: string): string {
    const from = area === "answer" ? this.answer : 0;
    const rows = this.frame.positions - from;
    const place = site ? SITES.indexOf(site) : null;
    let count = 0;
    for (let x = from; x < this.frame.positions; x++) if (this.doneHere(x, place)) count++;
    return `${count} of ${plural(rows, "row")} (${percent(count / rows)})`;
  }

  /** The drift codes of the answer's rows; null unless all are known and the row is one of them. */
  private answerCodes(quantity: string): number[] | null {
    const drifts = this.position < this.answer ? null : this.facts.drifts(quantity);
    if (!drifts) return null;
    const codes: number[] = [];
    for (let x = this.answer; x < this.frame.positions; x++) codes.push(at(drifts, this.layer, x));
    return codes.includes(NO_DATA) ? null : codes;
  }

  /** The place of the row's drift among those of the answer, the largest first; empty if unknown. */
  rank(quantity: string): string {
    const codes = this.answerCodes(quantity);
    return codes ? rankWords(codes, codes[this.position - this.answer]) : "";
  }

  /**
   * The row's drift, its rank, and the least drift of the answer's rows computed at a site. Empty
   * if a drift is unknown, or if the computed rows are not those of the largest drift.
   */
  cut(quantity: string, site: string): string {
    const codes = this.answerCodes(quantity);
    if (!codes) return "";
    const place = SITES.indexOf(site);
    const taken = codes.filter((_, i) => this.doneHere(this.answer + i, place));
    const left = codes.filter((_, i) => !this.doneHere(this.answer + i, place));
    if (!taken.length || !left.length || Math.min(...taken) < Math.max(...left)) return "";
    const own = codes[this.position - this.answer];
    const lowest = smallDrift(Math.min(...taken));
    return (
      `drift ${smallDrift(own)}, ${rankWords(codes, own)}; ` +
      `the cut-off for ${plural(taken.length, "row")} was ${lowest}`
    );
  }

  /** The drift of a quantity of the row; empty if it is unknown. */
  drifted(quantity: string): string {
    const code = driftCode(this.facts.token, quantity, this.step, this.layer, NO_DATA);
    if (code === NO_DATA) return "";
    return DRIFT[code] < 1e-4 ? "less than 0.0001" : DRIFT[code].toPrecision(2);
  }
}
