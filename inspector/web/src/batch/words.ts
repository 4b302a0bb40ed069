/** Sentences of a batch. */
import { duration, number, percent, plural, roughTime } from "../base/format.ts";
import { TASK_STATES } from "../base/task_states.ts";
import { waitWords } from "../race/progress.ts";
import { STATES as RACE_STATES } from "../race/report.ts";
import type { BatchProgress, Row } from "./messages.ts";

const STATES: Readonly<Record<string, string>> = {
  ...TASK_STATES,
  estimated: "The first prompt was run under every setting. Press Continue for the rest.",
};

/** What a batch is doing, and how long the rest will take; of one that failed, only why. */
export function stateWords(progress: BatchProgress): string {
  const parts = [STATES[progress.state] ?? progress.state];
  if (progress.message) parts.push(progress.message + (progress.message.endsWith(".") ? "" : "."));
  if (progress.state === "refused" && progress.batch) parts.push("Below is the last batch.");
  if (["failed", "refused"].includes(progress.state)) return parts.join(" ");
  if (progress.total) parts.push(`${number(progress.done)} of ${plural(progress.total, "run")}.`);
  if (progress.wait && progress.state === "running") {
    const words = waitWords(progress.wait);
    parts.push(RACE_STATES[progress.wait.state] ?? "", words && words + ".");
  } else if (progress.step !== undefined && progress.state === "running")
    parts.push(`The next one is at step ${progress.step + 1}.`);
  if (progress.seconds_left !== null && progress.done < progress.total)
    parts.push(`About ${roughTime(progress.seconds_left)} for the others.`);
  return parts.filter(Boolean).join(" ");
}

/** Whether an answer is right, as text; empty if the right one is not known. */
export function rightWords(right: boolean | null): string {
  if (right === null) return "";
  return right ? "✓ right" : "✗ wrong";
}

/** A run in a line: its agreement, whether it is right, forwards and time. */
export function runWords(run: Row | undefined): string {
  if (!run) return "not run";
  if (run.reason !== "done") return "failed";
  const agreement = run.agreement === null ? "" : percent(run.agreement) + " same";
  const cost = `${plural(run.forwards, "forward")}, ${duration(run.ms)}`;
  return [agreement, rightWords(run.right), cost].filter(Boolean).join(" · ");
}
