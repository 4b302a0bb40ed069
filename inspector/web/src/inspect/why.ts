/**
 * Why a row was recomputed or reused, as a sentence. The reasons come from the run's cache; their
 * conditions and placeholders are explained in `engine/core/reasons.py`.
 */
import { percent, plural } from "../base/format.ts";
import { PlannedRow, REGIONS, type PlanFacts, type RowCell, type RowFacts } from "./planned_row.ts";
import { SITES, SITE_WORDS } from "./sites.ts";
import type { Frame } from "./view.ts";

/** A template of a sentence, and the conditions under which it applies, between spaces. */
export interface Reason {
  when: string;
  text: string;
}

/** The document of the server (`inspector.views.why`). */
export interface Rules extends PlanFacts {
  /** The names of the run's caches: one, or two for a cache on another one. */
  parts: readonly string[];
  /** The reasons of each part. */
  reasons: readonly (readonly Reason[])[];
  /** The rows that the fact `budget` is a share of. */
  budget_of: "all" | "answer";
}

type Condition = (row: PlannedRow, of: string) => boolean;
type Placeholder = (row: PlannedRow, of: string, area: string) => string;

const CONDITIONS = new Map<string, Condition>([
  ["first_step", ({ step }) => step === 0],
  ["first_layer", ({ layer }) => layer === 0],
  ["full", ({ frame, step }) => frame.kinds.values[step] === 0],
  ["new_block", (row) => isNewBlock(row)],
  ...REGIONS.map((name, i): [string, Condition] => [name, ({ region }) => region === i]),
  ["answer", ({ region }) => region > 0],
  ["after_block", (row) => row.afterBlock],
  ["refresh", (row, region) => row.refreshed(region)],
  [
    "recomputed",
    ({ computed }, site) => (site ? computed[SITES.indexOf(site)] : computed.every(Boolean)),
  ],
  ["reused", ({ computed }) => !computed.some(Boolean)],
  ["every_row", (row) => row.everyRow],
  ["again", (row) => row.again],
  ["no", (row, name) => (row.fact(name) ?? 1) <= 0],
]);

const PLACEHOLDERS = new Map<string, Placeholder>([
  ["layer", ({ layer }) => String(layer + 1)],
  ["block", ({ frame, step }) => String(frame.blocks.values[step] + 1)],
  ["rows", ({ frame, step }) => plural(frame.rows.values[step], "row")],
  ["share", (row, site, area) => row.share(site, area)],
  ["times", (row) => row.computedTimes()],
  ["refreshes", (row, region) => row.refreshTimes(region)],
  ["drift", (row, quantity) => row.drifted(quantity)],
  ["rank", (row, quantity) => row.rank(quantity)],
  ["cut", (row, quantity, site) => row.cut(quantity, site)],
  ["fact", (row, name) => positive(row, name, (fact) => fact.toPrecision(2))],
  ["percent", (row, name) => positive(row, name, (fact) => percent(fact, 1))],
]);

function isNewBlock({ frame, step }: PlannedRow): boolean {
  const blocks = frame.blocks.values;
  return step === 0 || blocks[step] !== blocks[step - 1];
}

function positive(row: PlannedRow, name: string, words: (fact: number) => string): string {
  const fact = row.fact(name);
  return fact !== null && fact > 0 ? words(fact) : "";
}

/** The verdict on a row in one step and layer, and its reason. */
export class Why {
  private readonly row: PlannedRow;

  /** Without drifts, parts of sentences that name them are left out. */
  constructor(
    frame: Frame,
    private readonly rules: Rules,
    facts: RowFacts,
    cell: RowCell,
  ) {
    this.row = new PlannedRow(frame, rules, facts, cell);
  }

  /** Whether a condition such as `!refresh:prompt` holds; an unknown one does not. */
  holds(condition: string): boolean {
    if (condition.startsWith("!")) return !this.holds(condition.slice(1));
    const [name, of = ""] = condition.split(":");
    return CONDITIONS.get(name)?.(this.row, of) ?? false;
  }

  /** The text of a placeholder such as `share:ffn:answer`; empty if it has none. */
  value(placeholder: string): string {
    const [name, of = "", area = ""] = placeholder.split(":");
    return PLACEHOLDERS.get(name)?.(this.row, of, area) ?? "";
  }

  /** A text with its placeholders filled in, without the [parts] whose placeholders are empty. */
  fill(text: string): string {
    const filled = text.replace(/\[([^\]]*)\]/g, (_, part: string) =>
      [...part.matchAll(/{([^}]*)}/g)].every(([, name]) => this.value(name)) ? part : "",
    );
    return filled.replace(/{([^}]*)}/g, (_, name: string) => this.value(name));
  }

  private head(): string {
    if (this.holds("recomputed")) return "Recomputed";
    if (this.holds("reused")) return "Not recomputed";
    const left = SITE_WORDS.filter((_, site) => !this.row.computed[site]);
    const last = left.pop() ?? "";
    const names = left.length ? left.join(", ") + " and " + last : last;
    return names.charAt(0).toUpperCase() + names.slice(1) + " not recomputed";
  }

  /** The reasons that may apply: those of the second cache where it decided, else of the first. */
  private reasons(): readonly Reason[] {
    const { parts, reasons } = this.rules;
    const second = reasons.length > 1 && (parts[0] === "none" || !this.holds("reused"));
    return reasons[second ? 1 : 0];
  }

  /** The verdict and the first reason whose conditions all hold. */
  sentence(): string {
    const reason = this.reasons().find(({ when }) =>
      when.split(" ").every((condition) => !condition || this.holds(condition)),
    );
    return this.head() + (reason ? ": " + this.fill(reason.text) : "") + ".";
  }
}
