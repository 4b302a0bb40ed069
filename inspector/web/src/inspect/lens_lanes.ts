/** The logit lens of both lanes: where lane B would give another token than lane A. */
import type { LaneName } from "../race/messages.ts";
import { tokenAt, type LensIds } from "./lens.ts";
import type { Frame } from "./view.ts";

const RUN = 0;

/** The run's own best tokens of a lane at a probed step. */
export interface LaneLens {
  ids: LensIds;
  /** Index among the lens's positions by answer token; -1 for none. */
  places: Int32Array;
}

/** A lens of each lane. */
export type LensPair = Readonly<Record<LaneName, LaneLens>>;

/** The best tokens of both lanes for an answer token after a layer; null unless both have one. */
export function tokensOf(
  { a, b }: LensPair,
  layer: number,
  token: number,
): [number, number] | null {
  const [mine, theirs] = [a, b].map(({ ids, places }) =>
    token < places.length ? tokenAt(ids, RUN, layer, places[token]) : null,
  );
  return mine === null || theirs === null ? null : [mine, theirs];
}

/** Number of answer tokens that both lanes have. */
export function sharedTokens({ a, b }: LensPair): number {
  return Math.min(a.places.length, b.places.length);
}

/**
 * By answer token, the first layer, from 0, from which lane B gives another token than lane A up to
 * the last layer; -1 if the last layer gives the same token, or was not computed in both lanes.
 */
export function turnedLayers(pair: LensPair, layers: number): Int32Array {
  return Int32Array.from({ length: sharedTokens(pair) }, (_, token) => {
    let first = layers;
    while (first > 0 && differs(pair, first - 1, token)) first--;
    return first < layers ? first : -1;
  });
}

function differs(pair: LensPair, layer: number, token: number): boolean {
  const found = tokensOf(pair, layer, token);
  return found !== null && found[0] !== found[1];
}

/** By layer: answer tokens that both lanes have, those that differ, and those that turn for good. */
export interface TurnCounts {
  compared: number[];
  differing: number[];
  turned: number[];
}

/** How many answer tokens differ after each layer, and how many differ from there to the end. */
export function turnCounts(pair: LensPair, layers: number): TurnCounts {
  const turns = turnedLayers(pair, layers);
  const counts: TurnCounts = { compared: [], differing: [], turned: [] };
  for (let layer = 0; layer < layers; layer++) {
    const found = Array.from(turns, (_, token) => tokensOf(pair, layer, token));
    const both = found.filter((tokens) => tokens !== null);
    counts.compared.push(both.length);
    counts.differing.push(both.filter(([mine, theirs]) => mine !== theirs).length);
    counts.turned.push(turns.filter((first) => first === layer).length);
  }
  return counts;
}

/** A lane before one of its steps. */
export interface Before {
  frame: Pick<Frame, "prompt" | "positions" | "revealed" | "before" | "ids">;
  step: number;
}

/** Number of answer tokens that the canvases of two lanes do not have in common before a step. */
export function canvasesApart(a: Before, b: Before): number {
  const [mine, theirs] = [a, b].map(answerBefore);
  const length = Math.max(mine.length, theirs.length);
  return Array.from({ length }, (_, i) => mine[i] !== theirs[i]).filter(Boolean).length;
}

/** The answer before a step: ids, null where a mask stands. */
function answerBefore({ frame, step }: Before): (number | null)[] {
  const count = frame.positions - frame.prompt;
  return Array.from({ length: count }, (_, i) => {
    const position = frame.prompt + i;
    const revealed = frame.revealed.values[position];
    const known = frame.before.values[position] || (revealed >= 0 && revealed < step);
    return known ? frame.ids.values[position] : null;
  });
}
