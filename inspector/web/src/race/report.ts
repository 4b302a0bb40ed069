/** What the page says of a race: its state, its headline, and the numbers of a lane. */
import { duration, number, percent, plural } from "../base/format.ts";
import { quoted, visible } from "../base/token_text.ts";
import type { Frame } from "../inspect/view.ts";
import type { Lane } from "./lane.ts";
import type { LaneName, Summary } from "./messages.ts";
import type { Frames, Store } from "./store.ts";

/** The states of a race, in words. */
export const STATES: Record<string, string | undefined> = {
  empty: "There is no recorded example. Press Run to start a race.",
  example: "Recorded example",
  imported: "Imported: nothing is computed; times, if there are any, are those in the files",
  queued: "Waiting for a place …",
  starting: "Starting …",
  running: "Running: the lane with the smaller time takes the next step",
  lock: "Waiting for another run to finish …",
  gpu: "Requesting a shared GPU …",
  fetching: "Downloading the model …",
  loading: "Loading the model …",
  images: "Encoding the image (not timed with the steps) …",
  calibrating: "Preparing the cache for this model (once, not timed) …",
  warmup: "Warming up (not timed) …",
  recording: "Recording: the same settings are run again, without timing; Stop ends it",
  paused: "Paused: Step takes one step, Resume continues",
  stopped: "Stopped",
  failed: "Failed",
  memory: "Out of memory: all memory was freed",
  done: "Finished",
};

/** What a recording waits for, in the words of a race; empty if it does not wait. */
export function recordingWait({ wait, refusal }: Pick<Store, "wait" | "refusal">): string {
  return (!refusal && wait?.state && STATES[wait.state]) || "";
}

/** What a recording waits for or how far it is; empty at its start. */
export function recordingNews(store: Pick<Store, "wait" | "refusal" | "message">): string {
  return recordingWait(store) || store.message;
}

const KINDS = ["full", "partial", "reuse", "frozen"];

/** The line under the state: progress of a running race, else how fast lane B was beside lane A. */
export function headline(store: Store, frames: Frames): string {
  if ((store.live && !store.pending) || store.state === "stopped") return progress(store, frames);
  return store.summary ? comparison(store.summary) : "";
}

function progress(store: Store, frames: Frames): string {
  const shares = store.started.map((lane) => {
    const left = lane.masksLeft(frames[lane.name]);
    const count = lane.at.length;
    return `${lane.name.toUpperCase()} ${number(count - left)} of ${number(count)}`;
  });
  return shares.join(" · ");
}

function comparison(found: Summary): string {
  if (found.apart) return found.apart;
  const rules = unequalRules(found);
  if (found.speedup === null) return [shortWords(found), rules].filter(Boolean).join(". ");
  const text = found.text_speedup ? "; up to the end of the text " + ratio(found.text_speedup) : "";
  return "Lane B is " + speed(found.speedup, found.right) + text + (rules && ". " + rules);
}

/** Why two runs have no ratio of times, if it is their length. */
function shortWords({ forwards }: Summary): string {
  const single = forwards.length === 2 && forwards.every((count) => count === 1);
  return single ? "Each lane takes a single forward: too short to compare their times" : "";
}

function speed(speedup: number, [rightA, rightB]: Summary["right"]): string {
  const words = ratio(speedup);
  const slower = speedup < 1 && words !== EQUAL;
  const whole = words === EQUAL ? EQUAL + " in speed" : (slower ? "slower: " : "") + words;
  if (rightA !== true || rightB !== false) return whole;
  return whole + (slower ? ", and wrong" : ", but wrong");
}

const EQUAL = "about equal";

/** A speed-up in words, for instance "2.5 times as fast". */
export function ratio(speedup: number): string {
  if (Math.max(speedup, 1 / speedup).toFixed(1) === "1.0") return EQUAL;
  const large = speedup < 10 ? speedup.toFixed(1) : number(speedup, 0);
  return (speedup < 1 ? number(speedup) : large) + " times as fast";
}

function unequalRules(found: Summary): string {
  const [a, b] = found.end_of_text;
  return !a || !b || a === b ? "" : "Unequal end-of-text rules: A " + a + ", B " + b;
}

/** Facts of a finished race with two lanes: forwards, answers and agreement. */
export function chips(store: Store): string[] {
  const found = store.summary;
  if (!found || found.numbers.length < 2 || found.same_answer === null) return [];
  const out: string[] = [];
  if (found.speedup !== null) {
    const [a, b] = found.forwards;
    if (a !== null && b !== null) out.push(`${plural(b, "forward")} instead of ${number(a)}`);
    const [textA, textB] = found.text_forwards;
    if (textA && textB)
      out.push(`${number(textB)} instead of ${number(textA)} up to the end of the text`);
  }
  return [...out, verdict(found), ...agreement(found)];
}

function agreement(found: Summary): string[] {
  if (!found.same_vocabulary) {
    const text = found.same_text ? "the same text" : "tokens not compared";
    return [text + ": the vocabularies differ"];
  }
  if (found.same_text) return ["every token agrees"];
  if (found.agreement === null || found.first_divergence === null) return [];
  const first = found.first_divergence + 1;
  return [`${percent(found.agreement)} of tokens agree, first difference at token ${first}`];
}

/** Whether a right answer is a number, such as 7, -5 or 1,234. */
export function isNumber(answer: string): boolean {
  return /^-?(\d{1,3}(,\d{3})+|\d+)$/.test(answer.trim());
}

/** Whether the answers are the same and, if the right one is known, whether they are right. */
export function verdict(found: Summary): string {
  const { expected } = found;
  const [a, b] = found.numbers;
  if (expected !== null && !isNumber(expected)) {
    const same = found.same_answer ? "same answer" : "answers differ";
    return same + ": A" + mark(found.right[0]) + ", B" + mark(found.right[1]);
  }
  const truth = expected === null ? "" : " (right: " + expected + ")";
  if (found.same_answer)
    return a === null ? "same answer" : `same answer: ${a}${judged(found, truth)}`;
  if (a === null && b === null) return "no whole number in either answer" + truth;
  const shown = (place: number): string =>
    `${found.numbers[place] ?? "no whole number"}${mark(found.right[place])}`;
  return "answers differ: A " + shown(0) + ", B " + shown(1) + truth;
}

function judged(found: Summary, truth: string): string {
  if (found.right[0] === null) return "";
  return found.right[0] ? " ✓ right" : " ✗ wrong" + truth;
}

function mark(right: boolean | null): string {
  if (right === null) return "";
  return right ? " ✓" : " ✗";
}

/** Milliseconds of a step as text, from 10 ms with a digit more than other times. */
function perStep(ms: number): string {
  return ms >= 9.95 && ms < 999.95 ? ms.toFixed(1) + " ms" : duration(ms);
}

/** Names and values of a lane's numbers in a frame. */
export function stats(lane: Lane, frame: number): [string, string][] {
  const { timed } = lane;
  const spent = timed ? lane.clock[frame] : NaN;
  const rate = spent ? (lane.tokensBeforeEnd(frame) / spent) * 1000 : null;
  return [
    ["Masks left", number(lane.masksLeft(frame))],
    ["Forwards", lane.foreign ? "–" : number(lane.forwards[frame])],
    ["Time", timed ? duration(spent) : "–"],
    ["Per step", frame && timed ? perStep(spent / frame) : "–"],
    ["Text tokens/s", number(rate)],
  ];
}

/** The label at a lane's title: its end, or the kind of its last step in a frame. */
export function pill(lane: Lane, frame: number): string {
  if (!lane.start) return "";
  const count = lane.rows.length;
  if (lane.end && frame === count) return endWords(lane.end.reason, lane.before + count);
  if (!frame) return "not started";
  const row = lane.rows[frame - 1];
  if (lane.foreign) return `step ${frame}`;
  return `step ${lane.before + frame} · ${KINDS[row.kind]} step · ${plural(row.rows, "row")}`;
}

function endWords(reason: string, steps: number): string {
  const words: Record<string, string | undefined> = {
    done: "done",
    stopped: `stopped at step ${steps}`,
    failed: "failed",
    memory: "out of memory",
  };
  return words[reason] ?? "";
}

/** What the branch in lane B is and what became of the cache; empty if lane B is no branch. */
export function branchWords(store: Store): string {
  const { a, b } = store.lanes;
  const branch = b.start?.branch;
  if (!branch || !store.parent) return "";
  const changed = Object.entries(branch).map(([place, id]) => {
    const to = id < 0 ? "masked again" : `changed to ${quoted(b.pieces.get(id))}`;
    return `answer token ${Number(place) + 1} ${to}`;
  });
  const edited = changed.length ? `, with ${changed.join(", ")}` : "";
  const first = a.before ? ` Lane A is itself a branch, from step ${a.before + 1}.` : "";
  return (
    `Lane B continues lane A from before step ${b.before + 1}${edited}. It keeps the tokens that lane A had by then, but not its cache: ` +
    `the cache starts empty, so step ${b.before + 1} reuses nothing. Times and forwards of lane B count from there.${first}`
  );
}

/** The lanes on the page, if they are not those of the settings; empty otherwise. */
export function standingWords(store: Store): string {
  if (!store.parent) return "";
  const lanes = store.started.map((lane) => `${lane.name.toUpperCase()} ${lane.start.title}`);
  return `The lanes below are a branch: ${lanes.join("; ")}. The next run would be:`;
}

/** Where a lane's times were measured, or that they were not; empty without a lane. */
export function measuredWords(store: Store): string {
  const start = store.started.at(0)?.start;
  if (!start) return "";
  if (store.foreign) return foreignWords(store);
  const how = howWords(store);
  const end = store.timed ? ", without drawing." : ".";
  const memory = start.memory ? " " + start.memory + "." : "";
  const models = [...new Set(store.started.map((lane) => lane.start.model))];
  const named =
    models.length > 1 ? `Models ${models.join(" (A) and ")} (B). ` : `Model ${models[0]}. `;
  const places = [...new Set(store.started.map((lane) => lane.start.environment))];
  if (places.length > 1) return visible(named + how + places.join(" (A) and ") + " (B)" + end);
  return visible(named + how + start.environment + end + memory);
}

/** How the times of a race were taken, before where; of a lane that has none, that it has none. */
function howWords({ started }: Store): string {
  const untimed = started.filter((lane) => !lane.timed);
  if (!untimed.length) return "Measured by the engine's own clock on ";
  if (untimed.length === started.length) return "Recorded, not timed, on ";
  return `Lane ${untimed[0].name.toUpperCase()} was recorded, not timed; run on `;
}

/** Which models and machines the files of other engines name. */
function foreignWords(store: Store): string {
  const lanes = store.started.map(({ name, start, foreign }) => {
    const model = start.model || "not named";
    const times = start.lacks.includes("times") ? "no times" : "times as in the file";
    const by = foreign ? "another engine" : "this engine";
    const where = start.environment ? " on " + start.environment : "";
    return `Lane ${name.toUpperCase()}: model ${model}, decoded by ${by}${where}, ${times}.`;
  });
  return visible(lanes.join(" "));
}

/** What the frame of a run says of its recording. */
type Kept = Pick<Frame, "level"> & Partial<Pick<Frame, "narrowed">>;

/**
 * What of the runs is recorded, once their frames have come, and, unless the page is a replay file,
 * how to record more.
 */
export function recordWords(
  store: Store,
  frames: Partial<Record<LaneName, Kept>>,
  offline: boolean,
): string {
  if (store.foreign) return "A lane was decoded by another engine, so it cannot be recorded here.";
  const kept = keptOfLanes(store, frames);
  if (offline) return kept;
  if (store.started.length && !store.live && !store.recordable)
    return (kept + " Only whole runs can be recorded, and this one was not run to its end.").trim();
  const more =
    "Record runs the same settings again, without timing; Record and probe adds exact forwards at the steps given, or at up to 8 spread evenly.";
  return kept ? kept + " " + more : more;
}

/** What is recorded of the lanes; of each one for itself if they differ. */
function keptOfLanes(store: Store, frames: Partial<Record<LaneName, Kept>>): string {
  const found = store.started.flatMap(({ name }) => {
    const frame = frames[name];
    return frame ? [{ name, words: keptWords(frame) }] : [];
  });
  if (new Set(found.map(({ words }) => words)).size < 2) return found.at(0)?.words ?? "";
  return found
    .map(({ name, words }) => words.replace(/\.$/, ` (lane ${name.toUpperCase()}).`))
    .join(" ");
}

function keptWords({ level, narrowed }: Kept): string {
  const drift = narrowed ? "the chosen part of the drift" : "drift of every layer";
  if (level === "layers") return `Recorded: plans and ${drift}.`;
  if (level === "probe")
    return `Recorded with probe: plans, ${drift}, and the exact values at chosen steps.`;
  if (level === "steps") return "Recorded: plans and candidates of every step, without drift.";
  return "Not recorded: this run has only the tokens and rows of each step.";
}
