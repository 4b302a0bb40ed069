/** The numbers of both lanes and their ratios, as the rows of a table. */
import { number, percent } from "../base/format.ts";
import type { StartedLane } from "../race/lane.ts";
import type { Summary } from "../race/messages.ts";
import { metricText } from "../race/numbers.ts";
import { isNumber } from "../race/report.ts";

/** A measure: its name in the metrics, its label, and when and how it is shown. */
interface Measure {
  name: string;
  label: string;
  /** It is shown only if a lane has a guider. */
  guided?: boolean;
  /** It is a time, which recorded runs do not show. */
  timed?: boolean;
}

const MEASURES: readonly Measure[] = [
  { name: "forwards", label: "Forwards" },
  { name: "nfe", label: "Steps (NFE)" },
  { name: "total_ms", label: "Engine time, ms", timed: true },
  {
    name: "tokens_per_s",
    label: "Tokens before the end, per second of the whole run",
    timed: true,
  },
  { name: "positions_per_s", label: "Positions committed per second", timed: true },
  { name: "gflops", label: "GFLOPs" },
  { name: "gflops_guider", label: "… of the guider", guided: true },
  { name: "guider_ms", label: "Guider time, ms", guided: true, timed: true },
  { name: "tokens_per_nfe", label: "Tokens before the end per step", guided: true },
  { name: "tokens_per_guider_forward", label: "… per guider forward", guided: true },
  { name: "accepted", label: "Tokens accepted per step", guided: true },
  { name: "fallback_rate", label: "Steps that used the fallback", guided: true },
  { name: "guider_weight_bytes", label: "Guider's weights, bytes", guided: true },
  { name: "guider_cache_bytes", label: "Guider's cache, bytes", guided: true },
  { name: "recomputed", label: "Token-layers recomputed" },
  { name: "cache_bytes", label: "Cache, bytes" },
  { name: "peak_memory_bytes", label: "Peak memory, bytes" },
];

/** B divided by A as text; a dash if one is unknown or A is 0. */
export function ratioText(a: number | null, b: number | null): string {
  if (!a || b === null) return "–";
  const ratio = b / a;
  return (ratio < 999.5 ? ratio.toPrecision(3) : number(ratio)) + "×";
}

function metric(lane: StartedLane, name: string): number | null {
  return lane.end?.metrics[name] ?? null;
}

/** The rows of the table: a heading, and label, A, B and B / A of each measure. */
export function numberRows(a: StartedLane, b: StartedLane, timed: boolean): string[][] {
  const guided = [a, b].some((lane) => metric(lane, "guider_forwards") !== null);
  const shown = MEASURES.filter((measure) => guided || !measure.guided);
  const rows = shown.map((measure) => {
    const [mine, theirs] = [a, b].map((lane) =>
      measure.timed && !timed ? null : metric(lane, measure.name),
    );
    const [one, other] = [mine, theirs].map((value) => metricText(measure.name, value));
    return [measure.label, one, other, ratioText(mine, theirs)];
  });
  return [["Measure", "A: " + a.start.title, "B: " + b.start.title, "B / A"], ...rows];
}

/** The rows about the answers; none if the race has no summary of two lanes. */
export function answerRows(found: Summary | null): string[][] {
  if (!found || found.numbers.length < 2) return [];
  const ofNumber = found.expected === null || isNumber(found.expected);
  const verdicts = found.right.map((right, i) => {
    const verdict = right === null ? "" : right ? "✓ right" : "✗ wrong";
    const given = ofNumber ? (found.numbers[i] ?? "no whole number") : "";
    return `${given} ${verdict}`.trim();
  });
  const [a, b] = found.text_forwards;
  return [
    ["End-of-text rule", ...found.end_of_text.map((rule) => rule || "–"), ""],
    ["Forwards until the text is complete", number(a), number(b), a && b ? ratioText(a, b) : "–"],
    ["Tokens before the end that agree", "", percent(found.agreement), ""],
    [ofNumber ? "Number answered" : "Answer", ...verdicts, ""],
  ];
}

/** Which steps the numbers of branches cover; `child`: lane B continues lane A. */
export function branchNumberWords(lanes: readonly StartedLane[], child: boolean): string {
  if (child)
    return "Lane B continues from a step of lane A. Its numbers cover only the steps after the branch. ";
  return lanes
    .filter(({ start }) => start.branch)
    .map(({ name, start }) => [name.toUpperCase(), start.before + 1])
    .map(
      ([lane, step]) => `Lane ${lane} is a branch. Its numbers cover its steps from ${step} on. `,
    )
    .join("");
}
