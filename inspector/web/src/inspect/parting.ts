/** The earliest step at which the tokens of both lanes diverge, and its layer of largest error. */
import { plural } from "../base/format.ts";
import { quoted } from "../base/token_text.ts";
import type { Lane } from "../race/lane.ts";
import { at } from "./arrays.ts";
import {
  differentModels,
  firstSplit,
  namesOf,
  plansOf,
  reusedBefore,
  unsaidWords,
  type RunFacts,
} from "./first_split.ts";
import { SITE_OPTIONS } from "./quantities.ts";
import {
  predictions,
  predictionWords,
  type ErrorData,
  type MeanErrors,
  type ProbedPredictions,
} from "./probes.ts";

/** An answer token, from 0, and the id that a lane committed there. */
interface Commit {
  place: number;
  id: number;
}

/** The first step at which the lanes commit different tokens. */
export interface Parting {
  /** The step, from 0, counted with the steps before a branch. */
  step: number;
  /** What each lane commits in it; null if the lane has ended. */
  a: Commit[] | null;
  b: Commit[] | null;
  /** The tokens changed by hand before the first step of lane B; -1 is a mask. */
  edits: Commit[];
}

/** The mean error of a layer by site, NaN without data. */
export interface LayerError {
  layer: number;
  means: number[];
}

const MOST_NAMED = 4;
const NOTICED = 1e-4; // the least error that counts

/**
 * Where the lanes diverge in time; null if they commit the same tokens at the same steps. Steps
 * after the last one of a lane that did not come to its end do not count.
 */
export function parting(a: Lane, b: Lane): Parting | null {
  const from = Math.max(a.before, b.before);
  const edits = Object.entries(b.start?.branch ?? {}).map(([place, id]) => ({
    place: Number(place),
    id,
  }));
  const ends = [a, b].map((lane) => lane.before + lane.rows.length);
  const unfinished = [a, b].some((lane) => lane.end?.reason !== "done");
  const last = unfinished ? Math.min(...ends) : Math.max(...ends);
  for (let step = from; step < last; step++) {
    const [mine, theirs] = [commitsOf(a, step), commitsOf(b, step)];
    if (edits.length || JSON.stringify(mine) !== JSON.stringify(theirs))
      return { step, a: mine, b: theirs, edits };
  }
  return null;
}

function commitsOf(lane: Lane, step: number): Commit[] | null {
  const row = lane.rows.at(step - lane.before);
  if (!row) return null;
  const places = [...row.places].sort((one, other) => one - other);
  return places.map((place) => ({ place, id: lane.at[place]?.id ?? -1 }));
}

/** The paragraphs about where the lanes diverge in time. */
export function partingLines(found: Parting | null, a: Lane, b: Lane, facts: RunFacts): string[] {
  if (!found) {
    const whole = [a, b].every(({ end }) => end?.reason === "done");
    const steps = whole ? "each step" : "each step that both took";
    return [`In time, the lanes do not diverge: they commit the same tokens at ${steps}.`];
  }
  if (found.edits.length) {
    const changed = found.edits.map((edit) => {
      const to = edit.id < 0 ? "masked again" : `changed to ${quoted(b.pieces.get(edit.id))}`;
      return `answer token ${edit.place + 1} was ${to}`;
    });
    return [
      `In time, the lanes diverge at the branch, before step ${found.step + 1}: ${changed.join(", ")} by hand.`,
    ];
  }
  const did = `A ${commitWords(a, found.a)}; B ${commitWords(b, found.b)}.`;
  return [
    `In time, the lanes diverge at step ${found.step + 1}: ${did}`,
    ...earliestToken(a, b, found),
    partingCause(found, [a, b], facts),
  ];
}

function commitWords(lane: Lane, commits: Commit[] | null): string {
  if (!commits) return "has ended";
  if (!commits.length) return "commits nothing";
  const named = commits
    .slice(0, MOST_NAMED)
    .map(({ place, id }) => `${quoted(lane.pieces.get(id))} (answer token ${place + 1})`);
  const more = commits.length - named.length;
  return `commits ${named.join(", ")}${more ? ` and ${plural(more, "more token")}` : ""}`;
}

/** The token that differs and was committed first in any lane, unless another line names it. */
function earliestToken(a: Lane, b: Lane, { step }: Parting): string[] {
  const split = firstSplit(a, b);
  if (!split) return [];
  let best = { place: split.place, step: Infinity };
  for (let place = 0; place < Math.min(a.at.length, b.at.length); place++) {
    const [mine, theirs] = [a.at[place], b.at[place]];
    if (!mine || !theirs || mine.id === theirs.id || mine.row < 0 || theirs.row < 0) continue;
    const when = Math.min(mine.row + a.before, theirs.row + b.before);
    if (when < best.step) best = { place, step: when };
  }
  if (best.place === split.place || best.step === step) return [];
  const words = [a, b].map((lane) => {
    const token = lane.at[best.place];
    const piece = token ? quoted(lane.pieces.get(token.id)) : "?";
    return `${piece} in ${lane.name.toUpperCase()} (step ${lane.stepNumber(token?.row ?? 0)})`;
  });
  return [
    `Of the tokens that differ, answer token ${best.place + 1} was committed first: ${words.join(", ")}.`,
  ];
}

function partingCause({ step }: Parting, lanes: readonly Lane[], facts: RunFacts): string {
  const [a, b] = lanes.map(({ at }) => at.length);
  if (a !== b)
    return `Before that step both lanes knew the same tokens, but A has ${plural(a, "answer token")} and B ${b}, so they can diverge without any reuse.`;
  const same = "Before that step both lanes had the same canvas";
  const foreign = lanes.filter((lane) => lane.foreign);
  if (foreign.length) return `${same}. ${unsaidWords(foreign)} what was computed in it.`;
  const known = lanes.every(({ name }) => plansOf(facts, name));
  if (!known && !facts.recordable)
    return `${same}. Which layer has an error in it is not recorded.`;
  if (!known) return `${same}. Record and probe that step to see which layer has an error in it.`;
  if (differentModels(lanes[0], lanes[1])) return `${same}, but they have different models.`;
  const spared = lanes.filter((lane) => reusedBefore(facts, lane.name, step - lane.before));
  if (!spared.length)
    return `${same}, and no value had been reused, so the cause is their rules for choosing tokens.`;
  return (
    `${same}, so the cause is values that ${namesOf(spared)} reused or their rules for choosing tokens. ` +
    "An exact pass of that step shows which."
  );
}

/** The index of a step among the probed ones of a lane, -1 if it was not probed. */
export function probeOf(data: Pick<ErrorData, "step"> | null, lane: Lane, step: number): number {
  return data ? data.step.values.indexOf(step - lane.before) : -1;
}

/** The layers of a probed step by the mean errors of all sites: the largest of a site first. */
export function rankedLayers(
  errors: readonly MeanErrors[],
  probe: number,
  site: number,
): LayerError[] {
  const layers = errors[0].mean.shape[1];
  const found = Array.from({ length: layers }, (_, layer) => ({
    layer,
    means: errors.map(({ mean }) => at(mean, probe, layer)),
  }));
  const size = ({ means }: LayerError): number => (Number.isNaN(means[site]) ? -1 : means[site]);
  return found.sort((one, other) => size(other) - size(one) || one.layer - other.layer);
}

/** Which layer of a lane caused its error in a probed step, in words. */
export function rankingWords(lane: Lane, ranked: readonly LayerError[], site: number): string {
  const name = lane.name.toUpperCase();
  const unknown = ranked.filter(({ means }) => means.every(Number.isNaN));
  if (unknown.length === ranked.length) return `Lane ${name}: no error was recorded at that step.`;
  const noticed = ranked.filter(({ means }) => means.some((mean) => mean > NOTICED));
  if (!noticed.length) {
    const exact = ranked.every(({ means }) => means.every((mean) => !(mean > 0)));
    const none = unknown.length ? "no recorded layer" : "no layer";
    return `Lane ${name}: ${none} has an error${exact ? "" : " above 0.0001"} at that step.`;
  }
  const first = Math.min(...noticed.map(({ layer }) => layer));
  const [worst] = ranked;
  const most = Number.isNaN(worst.means[site])
    ? ""
    : ` The error of the ${SITE_OPTIONS[site][1]} is largest in layer ${worst.layer + 1}, ${worst.means[site].toPrecision(2)}.`;
  const which = unknown.some(({ layer }) => layer < first) ? "recorded layer" : "layer";
  return `Lane ${name}: the first ${which} with an error is layer ${first + 1}; later layers get its error as input and add their own.${most}`;
}

/** What the exact pass predicted in the step where the lanes diverge. */
export function exactLines(
  found: Parting,
  lane: Lane,
  data: ProbedPredictions,
  prompt: number,
): string[] {
  const places = new Set([...(found.a ?? []), ...(found.b ?? [])].map(({ place }) => place));
  const here = predictions(data, prompt);
  const named = here.filter(({ place }) => places.has(place)).slice(0, MOST_NAMED);
  if (!named.length) return [];
  return [`Lane ${lane.name.toUpperCase()}, ${named.map(predictionWords).join("; ")}.`];
}
