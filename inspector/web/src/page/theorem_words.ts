/** What the theorem's widget says. */
import { alike, type Outcome, type Scene } from "./theorem_model.ts";

/** The names of outcomes with equal probability. */
export function names(rows: readonly Outcome[]): string {
  return rows.map((row) => row.name).join(", ") + (rows.length > 1 ? " (tie)" : "");
}

function chance(row: Outcome): string {
  return `${row.name} (P ${row.p.toFixed(3)})`;
}

/** Whether the theorem holds, and what happens. */
export function verdict(scene: Scene): string {
  const { k, epsilon, hundredths, safe, same, once, chain, bestP } = scene;
  const total = (((k + 1) * hundredths) / 100).toFixed(2);
  const sum = `(k + 1)ε = ${k + 1} × ${epsilon.toFixed(2)} = ${total}`;
  if (safe) {
    return (
      `Guaranteed: ${sum} ≤ 1. For any dependency between the tokens, decoding all ${k} in ` +
      `parallel gives ${once.name}, the most probable outcome of the joint, which decoding one ` +
      "at a time also gives."
    );
  }
  const open = `Not guaranteed: ${sum} > 1. `;
  const right = bestP.length === 1 && bestP[0] === once;
  if (same && right) {
    return (
      open +
      `Here both ways still give ${once.name}, but for another joint with equally probable top ` +
      "tokens they may differ."
    );
  }
  const said = `Parallel decoding gives ${chance(once)}, one at a time ${chance(chain)}`;
  const best = `${names(bestP)} (P ${bestP[0].p.toFixed(3)}).`;
  return open + said + (bestP.includes(chain) ? "." : ", and most probable is " + best);
}

/** What the joint is. */
export function story(scene: Scene): string {
  const { k, epsilon, safe, strength } = scene;
  if (strength === null) {
    return (
      "Five poker hands of two words each. “high” is the most likely first word and “house” the " +
      "most likely second word, but there is no hand “high house”: chosen independently, the " +
      "most likely words form a pair that never occurs. The probabilities of both words are far " +
      "too low for the theorem. Move a slider to leave the example."
    );
  }
  const zeros = "0".repeat(k);
  const ends =
    "In an outcome, 0 stands for the top token of a position and 1 for another token. " +
    "Dependency 0: the tokens are independent and P = Q. Dependency 1: at most one token " +
    `differs from the top token, which lowers the probability of ${zeros} as far as these ` +
    "marginals allow. The marginals, and so Q, do not depend on the slider. ";
  const tight = safe
    ? `The bound is tight: with ε just above 1/${k + 1}, the right end of that slider gives a ` +
      "joint with another most probable outcome."
    : `The bound is tight: ε = ${epsilon.toFixed(2)} is above 1/${k + 1}, and with dependency 1 ` +
      `each outcome with a single 1 is more probable than ${zeros}.`;
  return ends + tight;
}

/** Facts of a scene: name and text. */
export function facts(scene: Scene): [string, string][] {
  const { tops, epsilon, bestP, bestQ, chain, once, same, tv, bound } = scene;
  const each = alike(tops)
    ? "each " + tops[0].toFixed(4)
    : tops.map((top) => top.toFixed(4)).join(", ");
  const free = bound > 1 ? " (above 1, so no constraint)" : "";
  const limit = `below (3k − 1)ε/2 = ${bound.toFixed(3)}${free}`;
  return [
    ["Marginals of the top tokens", `${each}, all above 1 − ε = ${(1 - epsilon).toFixed(2)}`],
    ["Most probable in P", names(bestP)],
    ["Most probable in Q (parallel)", names(bestQ)],
    ["One at a time, left to right", chain.name],
    [
      "Parallel = one at a time?",
      same ? "✓ yes, " + once.name : `✗ no, ${once.name} against ${chain.name}`,
    ],
    ["Total variation of P and Q", `${tv.toFixed(4)}, ${limit}`],
  ];
}

/** The chart of the outcomes in words. */
export function barsName({ bestP, bestQ }: Scene): string {
  const best = `Most probable in P: ${names(bestP)}. In Q: ${names(bestQ)}.`;
  return `P and Q of the outcomes. ${best} All numbers are in the table below.`;
}

/** The chart of the zone in words. */
export function zoneName({ k, epsilon, safe }: Scene): string {
  const point = `The point ε = ${epsilon.toFixed(2)}, k = ${k} is ${safe ? "inside." : "outside."}`;
  return `ε across, k upwards; the guaranteed zone ends at ε = 1/(k + 1). ${point}`;
}
