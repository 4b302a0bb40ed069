/** Sentences of a search for settings. */
import { number, percent, plural, roughTime } from "../base/format.ts";
import { TASK_STATES } from "../base/task_states.ts";
import type { Advice, CacheAdvice, Measured, SearchProgress } from "./messages.ts";

const STATES: Readonly<Record<string, string>> = {
  ...TASK_STATES,
  running: "Searching.",
  estimated: "Nothing has been searched yet. Press Continue to search.",
};
const KINDS: Readonly<Record<string, string>> = {
  tokens: "tokens of plain decoding kept",
  answers: "final answers of plain decoding kept",
  accuracy: "right answers, as a share of plain decoding's",
};

function capital(text: string): string {
  return text.slice(0, 1).toUpperCase() + text.slice(1);
}

/** What a search is doing, and how long this stage will take; of one that failed, only why. */
export function stateWords(progress: SearchProgress): string {
  const parts = [STATES[progress.state] ?? progress.state];
  if (progress.message) parts.push(progress.message + (progress.message.endsWith(".") ? "" : "."));
  if (progress.state === "running" && progress.stage)
    parts.push(
      `${capital(progress.stage)}: ${number(progress.done)} of ${number(progress.total)}.`,
    );
  if (progress.state === "refused" && progress.search) parts.push("Below is the last search.");
  if (progress.runs && !["failed", "refused"].includes(progress.state))
    parts.push(`${plural(progress.runs, "run")}${progress.state === "done" ? "" : " so far"}.`);
  if (
    progress.state === "running" &&
    progress.seconds_left !== null &&
    progress.done < progress.total
  )
    parts.push(`About ${roughTime(progress.seconds_left)} for this stage.`);
  return parts.join(" ");
}

/** The name of what is kept, as that of an axis. */
export function kindWords(of: string): string {
  return KINDS[of] ?? of;
}

/** Whether a setting's figures have intervals, which those of a single prompt do not have. */
export function hasIntervals({ prompts }: Pick<Measured, "prompts">): boolean {
  return prompts > 1;
}

/** A kept share with its interval, if it has one. */
export function keptWords(one: Pick<Measured, "kept" | "prompts">): string {
  const { kept } = one;
  if (!kept) return "cannot be judged";
  if (!hasIntervals(one)) return percent(kept.share);
  return `${percent(kept.share)} (${percent(kept.low)} to ${percent(kept.high)})`;
}

/** A speed-up with its interval, if it has one. */
export function speedWords(one: Measured): string {
  const [own, low, high] = [one.speed_up, one.speed_up_low, one.speed_up_high];
  if (!hasIntervals(one)) return own.toFixed(2);
  return `${own.toFixed(2)} (${low.toFixed(2)} to ${high.toFixed(2)})`;
}

/** The chosen setting, or why there is none. */
export function chosenWords({ chosen, finished, request }: Advice): string {
  const asked = `at least ${percent(request.keep)}`;
  if (!finished) return "No final test is over, so no setting is chosen.";
  if (!chosen)
    return `Plain decoding: the final test accepted no setting that keeps ${asked} (${kindWords(request.of)}).`;
  const slower = chosen.speed_up > 1 ? "" : " It is not faster, so plain decoding serves better.";
  return (
    `${chosen.name}: ${speedWords(chosen)} times as fast as plain decoding, ` +
    `${keptWords(chosen)} ${kindWords(request.of)} on ${plural(chosen.prompts, "new prompt")}; ` +
    `${percent(chosen.recomputed)} of the rows recomputed. Asked for: ${asked}.${slower}`
  );
}

/** What a search was asked for, which the form may not show after a reload. */
export function requestWords({ request }: Advice): string {
  const { keep, of, search_prompts, held_back_prompts, candidates } = request;
  return (
    `Asked for: at least ${percent(keep)} (${kindWords(of)}), ` +
    `${plural(search_prompts, "prompt")} for the search and ${plural(held_back_prompts, "other")} ` +
    `for the final test, at most ${plural(candidates, "candidate")} of a method.`
  );
}

/** A sentence on the search of a method: its size, and how well the predictions ranked. */
export function searchedWords(one: CacheAdvice): string {
  const share = one.grid_runs ? one.runs / one.grid_runs : null;
  const of = plural(one.grid, "setting");
  const parts = [
    one.runs
      ? `${one.title}: ${plural(one.runs, "run")} chose among ${of}; all of them would be ${plural(one.grid_runs, "run")} (${percent(share)})`
      : `${one.title}: no candidate of ${of} was run yet`,
  ];
  const { kept, time, settings } = one.correlations;
  const ranks = [
    kept === null ? "" : `${kept.toFixed(2)} for what is kept`,
    time === null ? "" : `${time.toFixed(2)} for the time`,
  ].filter(Boolean);
  if (ranks.length)
    parts.push(
      `rank correlation of prediction and measurement over ${plural(settings, "setting")}: ${ranks.join(", ")}`,
    );
  if (one.random_runs !== null)
    parts.push(`${plural(one.random_runs, "run")} of settings drawn at random`);
  return parts.join("; ") + ".";
}
