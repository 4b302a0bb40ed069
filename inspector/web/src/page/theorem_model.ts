/** The joint distributions of the theorem's widget, and what decoding makes of them. */

/** An outcome: a choice for every token, its probability `p` and the product of marginals `q`. */
export interface Outcome {
  /** The index of each token's choice. */
  digits: number[];
  name: string;
  p: number;
  q: number;
}

/** A joint distribution of `k` tokens with what the widget says of it. */
export interface Scene {
  rows: Outcome[];
  k: number;
  /** ε, and ε in hundredths, which are exact. */
  epsilon: number;
  hundredths: number;
  /** The dependency between the tokens, from 0 to 1; null in the example. */
  strength: number | null;
  /** The most probable outcomes of the joint and of the product. */
  bestP: Outcome[];
  bestQ: Outcome[];
  /** What decoding one at a time, and in parallel, gives. */
  chain: Outcome;
  once: Outcome;
  /** The probability of the top token of each position. */
  tops: number[];
  /** The total variation of P and Q, and its bound. */
  tv: number;
  bound: number;
  /** Whether the theorem guarantees that both ways agree. */
  safe: boolean;
  /** Whether both ways agree. */
  same: boolean;
  /** The outcomes that are drawn, the largest first. */
  listed: Outcome[];
}

const TIE = 1e-12;
/** How many outcomes are drawn. */
export const SHOWN = 16;
const HANDS = new Map([
  ["high card", 0.25],
  ["high pair", 0.15],
  ["two pair", 0.1],
  ["full house", 0.3],
  ["straight flush", 0.2],
]);
const HAND_WORDS = [
  ["high", "two", "full", "straight"],
  ["card", "pair", "house", "flush"],
];
const HAND_HUNDREDTHS = 71;

/** The sum of the outcomes' probabilities. */
export function mass(rows: readonly Outcome[], of: "p" | "q" = "p"): number {
  return rows.reduce((sum, row) => sum + row[of], 0);
}

/** Whether probabilities are equal but for rounding. */
export function alike(values: readonly number[]): boolean {
  return values.every((value) => Math.abs(value - values[0]) < TIE);
}

function combinations(words: readonly (readonly string[])[]): number[][] {
  return words.reduce<number[][]>(
    (rows, own) => rows.flatMap((row) => own.map((_, i) => [...row, i])),
    [[]],
  );
}

interface Joint {
  rows: Outcome[];
  /** The probability of each choice of each token. */
  marginals: number[][];
}

function joint(
  words: readonly (readonly string[])[],
  gap: string,
  chance: (digits: readonly number[], name: string) => number,
): Joint {
  const rows = combinations(words).map((digits) => {
    const name = digits.map((digit, place) => words[place][digit]).join(gap);
    return { digits, name, p: chance(digits, name), q: 1 };
  });
  const marginals = words.map((own, place) =>
    own.map((_, i) => mass(rows.filter((row) => row.digits[place] === i))),
  );
  for (const row of rows) {
    row.q = row.digits.reduce((all, digit, place) => all * marginals[place][digit], 1);
  }
  return { rows, marginals };
}

/** Whether (k + 1)ε ≤ 1. */
function guaranteed(k: number, hundredths: number): boolean {
  return (k + 1) * hundredths <= 100;
}

/** The probability of a token that is not the top one, just below ε; at the bound, just above. */
function doubtOf(k: number, hundredths: number): number {
  const [epsilon, least] = [hundredths / 100, 1 / (k + 1)];
  if (guaranteed(k, hundredths)) return 0.98 * epsilon;
  const delta = Math.min(least, k * (epsilon - least)) / 2;
  return least + delta / k;
}

/** A joint of `k` binary tokens between independence (strength 0) and dependence (1). */
function family(k: number, hundredths: number, strength: number): Joint {
  const doubt = doubtOf(k, hundredths);
  return joint(new Array<string[]>(k).fill(["0", "1"]), "", (digits) => {
    const ones = digits.reduce((sum, digit) => sum + digit, 0);
    const free = doubt ** ones * (1 - doubt) ** (k - ones);
    const tied = ones === 0 ? 1 - k * doubt : ones === 1 ? doubt : 0;
    return (1 - strength) * free + strength * tied;
  });
}

function largest(rows: readonly Outcome[], of: "p" | "q"): Outcome[] {
  const top = Math.max(...rows.map((row) => row[of]));
  return rows.filter((row) => row[of] > top - TIE);
}

/** The outcome of choosing the most likely token of each position, given those before it. */
function oneByOne(rows: readonly Outcome[], places: number): Outcome {
  let left = rows;
  for (let place = 0; place < places; place++) {
    const totals = new Map<number, number>();
    for (const row of left) {
      totals.set(row.digits[place], (totals.get(row.digits[place]) ?? 0) + row.p);
    }
    const top = Math.max(...totals.values());
    const digit = [...totals].find(([, total]) => total > top - TIE)?.[0];
    left = left.filter((row) => row.digits[place] === digit);
  }
  return left[0];
}

/** The larger probability of an outcome in whole ties, so that equal ones keep their order. */
function height({ p, q }: Outcome): number {
  return Math.round(Math.max(p, q) / TIE);
}

function sceneOf(
  { rows, marginals }: Joint,
  k: number,
  hundredths: number,
  strength: number | null,
): Scene {
  const [bestP, bestQ] = [largest(rows, "p"), largest(rows, "q")];
  const [chain, once] = [oneByOne(rows, k), bestQ[0]];
  return {
    rows,
    k,
    epsilon: hundredths / 100,
    hundredths,
    strength,
    bestP,
    bestQ,
    chain,
    once,
    tops: marginals.map((own) => Math.max(...own)),
    tv: rows.reduce((sum, { p, q }) => sum + Math.abs(p - q), 0) / 2,
    bound: ((3 * k - 1) * hundredths) / 200,
    safe: guaranteed(k, hundredths),
    same: chain === once,
    listed: [...rows].sort((a, b) => height(b) - height(a)).slice(0, SHOWN),
  };
}

/** The scene of `k` tokens, ε in hundredths and a dependency from 0 to 1. */
export function sceneFor(k: number, hundredths: number, strength: number): Scene {
  return sceneOf(family(k, hundredths, strength), k, hundredths, strength);
}

/** The example of the poker hands. */
export function handScene(): Scene {
  const hands = joint(HAND_WORDS, " ", (_, name) => HANDS.get(name) ?? 0);
  return sceneOf(hands, HAND_WORDS.length, HAND_HUNDREDTHS, null);
}
