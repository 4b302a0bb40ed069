/** Where and why the answers of the two lanes first differ. */
import { chance, plural } from "../base/format.ts";
import { quoted } from "../base/token_text.ts";
import type { Lane, Token } from "../race/lane.ts";
import type { LaneName } from "../race/messages.ts";
import { timesDone, type RowsDone, type TokenRows } from "./plans.ts";
import { SITE_WORDS } from "./sites.ts";
import { hasPlans, type Frame } from "./view.ts";
import { candidateList, candidateRow, type CandidateData } from "./views/candidates.ts";

/** What a lane chose at the first place at which the lanes differ. */
interface Choice {
  lane: Lane;
  token: Token;
}

/** The first place of the answer, from 0, at which the lanes committed different tokens. */
export interface Split {
  place: number;
  a: Choice;
  b: Choice;
}

/** What is known of the lanes' runs; null or undefined where it is not recorded, or not read yet. */
export interface RunFacts {
  /** Whether the runs can be recorded. */
  recordable: boolean;
  frames: Partial<Record<LaneName, Frame>>;
  /** The rows that each step, layer and site recomputed. */
  done: (lane: LaneName) => RowsDone | null;
  /** The candidates of a step. */
  candidates: (lane: LaneName, step: number) => CandidateData | null;
  /** What happened to a position. */
  token: (lane: LaneName, position: number) => TokenRows | null;
}

/** The first split of two lanes, up to the later of their ends of text; null if there is none. */
export function firstSplit(a: Lane, b: Lane): Split | null {
  const end = Math.max(a.firstEnd(a.rows.length), b.firstEnd(b.rows.length));
  const last = Math.min(a.at.length - 1, b.at.length - 1, end);
  for (let place = 0; place <= last; place++) {
    const [mine, theirs] = [a.at[place], b.at[place]];
    if (mine && theirs && mine.id !== theirs.id) {
      return { place, a: { lane: a, token: mine }, b: { lane: b, token: theirs } };
    }
  }
  return null;
}

/**
 * The paragraphs about a split: the choices, their cause, and what is known of each lane. `parted`
 * is the step, from 0, at which the lanes diverge in time, null if they do not.
 */
export function splitLines(
  split: Split | null,
  facts: RunFacts,
  parted: number | null = null,
): string[] {
  if (!split) {
    const order = parted === null ? "" : " The lanes only committed tokens at different steps.";
    return [
      "In reading order, the answers do not differ: every token before the end that both lanes committed is the same." +
        order,
    ];
  }
  const { place, a, b } = split;
  const choices = [a, b].map(choiceWords).join(", ");
  return [
    `In reading order, the answers first differ at answer token ${place + 1}: ${choices}.` +
      laterWords(split, parted),
    causeWords(split, facts),
    ...[a, b].flatMap((choice) => laneLines(choice, place, facts)),
  ];
}

/** Why the first token that differs in reading order is not of the step where the lanes diverge. */
function laterWords({ a, b }: Split, parted: number | null): string {
  if (parted === null) return "";
  const steps = [a, b].map(({ lane, token }) => token.row + lane.before);
  if (Math.min(...steps) <= parted) return "";
  return (
    ` Both committed it after step ${parted + 1}, where they diverge: a step may commit any masked token of its block,` +
    " so the first difference in reading order need not be the first in time."
  );
}

/** Lanes by their names: "lane B" or "lanes A and B"; empty for none. */
export function namesOf(lanes: readonly Lane[]): string {
  if (!lanes.length) return "";
  return (lanes.length > 1 ? "lanes " : "lane ") + lanes.map(nameOf).join(" and ");
}

/** The start of a sentence on what the files of lanes do not say. */
export function unsaidWords(lanes: readonly Lane[]): string {
  const files = lanes.length > 1 ? ["files", "do"] : ["file", "does"];
  return `The ${files[0]} of ${namesOf(lanes)} ${files[1]} not say`;
}

function nameOf(lane: Lane): string {
  return lane.name.toUpperCase();
}

function choiceWords({ lane, token }: Choice): string {
  const given = token.fixed || token.row < 0;
  const piece = quoted(lane.pieces.get(token.id));
  const words = given
    ? givenWords(lane, piece)
    : `${nameOf(lane)} committed ${piece} at step ${lane.stepNumber(token.row)}`;
  return words + (token.sure === null ? "" : ` (confidence ${chance(token.sure)})`);
}

function givenWords(lane: Lane, piece: string): string {
  if (!lane.start?.branch) return `${nameOf(lane)} was given ${piece}`;
  return `${nameOf(lane)} had ${piece} before step ${lane.before + 1}`;
}

/** For each place, the token that a lane knew before its choice; null for a mask. */
function knownBefore({ lane, token }: Choice): (number | null)[] {
  const first = Math.max(token.row, 0);
  return lane.at.map((known) => (known && known !== token && known.row < first ? known.id : null));
}

function causeWords({ place, a, b }: Split, facts: RunFacts): string {
  const byHand = [a, b].filter(
    ({ lane, token }) => token.row < 0 && place in (lane.start?.branch ?? {}),
  );
  if (byHand.length) {
    const set = byHand.length > 1 ? ["tokens", "were"] : ["token", "was"];
    return `The ${set[0]} of ${namesOf(byHand.map(({ lane }) => lane))} ${set[1]} set by hand.`;
  }
  const [mine, theirs] = [knownBefore(a), knownBefore(b)];
  const same = mine.length === theirs.length && mine.every((id, i) => id === theirs[i]);
  const canvas = same
    ? "Both lanes had the same canvas at this choice"
    : differingCanvas(mine, theirs);
  const foreign = [a, b].filter(({ lane }) => lane.foreign).map(({ lane }) => lane);
  if (foreign.length) {
    return `${canvas}. ${unsaidWords(foreign)} how this row was computed.`;
  }
  if (!plansOf(facts, "a") || !plansOf(facts, "b")) {
    if (!facts.recordable) return canvas + ". How the caches treated this row is not recorded.";
    return canvas + ". Press Record to see how the caches treated this row.";
  }
  const spared = [a, b].filter(({ lane, token }) => reusedBefore(facts, lane.name, token.row));
  const names = namesOf(spared.map(({ lane }) => lane));
  const reused = names && `values reused by ${names}`;
  if (differentModels(a.lane, b.lane))
    return `${canvas}, but the lanes have different models${reused && `; there were also ${reused}`}.`;
  if (same) {
    const rules = "from the rules for choosing tokens";
    return reused
      ? `${canvas}, so the difference comes from ${reused} or ${rules}.`
      : `${canvas}, so the difference comes ${rules}, because no value had been reused before.`;
  }
  const also = reused ? `; there were also ${reused}` : ", and no value had been reused before";
  return canvas + also + ".";
}

function differingCanvas(
  mine: readonly (number | null)[],
  theirs: readonly (number | null)[],
): string {
  const [a, b] = [mine, theirs].map((ids) => ids.filter((id) => id !== null).length);
  const shared = Math.min(mine.length, theirs.length);
  const apart = mine
    .slice(0, shared)
    .some((id, i) => id !== null && theirs[i] !== null && theirs[i] !== id);
  const counts =
    mine.length === theirs.length
      ? `${plural(a, "answer token")} and B ${b}`
      : `${a} of ${plural(mine.length, "answer token")} and B ${b} of ${theirs.length}`;
  return (
    `The canvases of the lanes differed at this choice: A knew ${counts}` +
    (apart ? ", and some of these already differed after this token" : "")
  );
}

/** Whether the plans of a lane were recorded. */
export function plansOf({ frames }: Pick<RunFacts, "frames">, lane: LaneName): boolean {
  const frame = frames[lane];
  return frame !== undefined && hasPlans(frame);
}

/** Whether two lanes ran different models. */
export function differentModels(a: Lane, b: Lane): boolean {
  return a.start?.model !== b.start?.model;
}

/**
 * Whether a lane reused any value up to a step that a run without a cache computes again; no if its
 * plan is not recorded. The first step has nothing to reuse, also if it leaves rows out. The keys and
 * values that autoregressive decoding keeps are exact.
 */
export function reusedBefore(
  facts: Pick<RunFacts, "frames" | "done">,
  lane: LaneName,
  last: number,
): boolean {
  const frame = facts.frames[lane];
  const rows = plansOf(facts, lane) ? facts.done(lane) : null;
  if (!frame || !rows || frame.causal) return false;
  const { shape, values } = rows.done;
  const ofStep = shape[1] * shape[2];
  const count = Math.min(last + 1, frame.steps) * ofStep;
  const sight = frame.sight.values;
  return values.subarray(ofStep, count).some((done, i) => done < sight[1 + Math.floor(i / ofStep)]);
}

function laneLines({ lane, token }: Choice, place: number, facts: RunFacts): string[] {
  const frame = facts.frames[lane.name];
  if (!frame || token.row < 0) return [];
  const lines: string[] = [];
  const position = frame.prompt + place;
  const plans = plansOf(facts, lane.name);
  const data = plans ? facts.candidates(lane.name, token.row) : null;
  const row = data ? candidateRow(data, position) : -1;
  if (data && row >= 0) {
    const best = candidateList(data, row).map((one) => `${quoted(one.piece)} ${chance(one.prob)}`);
    lines.push(
      `Candidates of lane ${nameOf(lane)} for this token at step ${lane.stepNumber(token.row)}: ${best.join(", ")}.`,
    );
  }
  const own = position - (frame.shift ?? 0); // the row whose logits give the token
  const rows = plans && !frame.causal ? facts.token(lane.name, own) : null;
  if (rows) lines.push(recomputedWords(lane, frame, token.row, own, rows));
  return lines;
}

function recomputedWords(
  lane: Lane,
  frame: Frame,
  last: number,
  own: number,
  rows: TokenRows,
): string {
  const steps = Math.min(last + 1, frame.steps);
  const inSight = frame.sight.values.subarray(0, steps).filter((sight) => own < sight);
  const all = inSight.length * frame.layers;
  const done = SITE_WORDS.map((_, site) => {
    let count = 0;
    for (let l = 0; l < frame.layers; l++) count += timesDone(rows, steps, l, site);
    return count;
  });
  const counts = SITE_WORDS.map((name, site) => `${name} ${done[site]}`).join(", ");
  const rest = done.every((count) => count === all) ? "nothing was reused" : "the rest was reused";
  const which = frame.shift ? "the row before, which predicts this token," : "this row";
  return `Lane ${nameOf(lane)} had recomputed ${which} until then, out of ${all} times (once for each layer in each step): ${counts}; ${rest}.`;
}
