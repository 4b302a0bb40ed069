/** What a recorded step would have committed under other settings (`engine.generate.what_if`). */
import { percent, plural } from "../base/format.ts";
import type { Piece } from "../base/token_text.ts";
import { at, type NdArray } from "./arrays.ts";

/** A setting of the rule; its values now and in the run (null: the run has another rule). */
export interface WhatIfKnob {
  name: string;
  label: string;
  help: string;
  type: string;
  lo: number | null;
  hi: number | null;
  choices: readonly string[];
  default: KnobValue;
  value: KnobValue;
  run: KnobValue | null;
}

export type KnobValue = number | string | boolean;

/** The answer of the server, by position of the step, in rising order. */
export interface WhatIfData {
  step: number;
  positions: NdArray;
  ids: NdArray;
  confidence: NdArray;
  score: NdArray;
  /** [n, 2]: bounds of the probability that the token is the one drawn. */
  chance: NdArray;
  /** 0: nothing, 1: committed, 2: filled in after the end of the text. */
  would: NdArray;
  did: NdArray;
  did_ids: NdArray;
  own: boolean;
  possible: boolean;
  unknown: readonly string[];
  notes: readonly string[];
  refusal: string;
  query: string;
  rule: string;
  run_rule: string;
  rules: readonly { name: string; title: string }[];
  knobs: readonly WhatIfKnob[];
  temperature: WhatIfKnob;
  pieces: Partial<Record<string, Piece>>;
}

/** How a token of the two results differs. */
export type Difference = "same" | "added" | "dropped" | "other" | "neither";

/** A token of the table. */
export interface WhatIfRow {
  position: number;
  /** The token that could be committed, or that the run committed; -1 for none. */
  id: number;
  didId: number;
  confidence: number;
  score: number;
  chance: readonly [number, number];
  did: number;
  would: number;
  difference: Difference;
}

/** The names of what a step does with a position, by code. */
export const OUTCOMES = ["–", "committed", "filled in"];

/** The differences in words, with a sign. */
export const DIFFERENCES: Record<Difference, string> = {
  same: "= the same",
  added: "+ added",
  dropped: "− left out",
  other: "≠ another token",
  neither: "",
};

function differenceOf(did: number, would: number, sameId: boolean): Difference {
  if (did && would) return sameId ? "same" : "other";
  if (would) return "added";
  return did ? "dropped" : "neither";
}

/** The tokens of a step: those of either result first, and then the others by their score. */
export function whatIfRows(data: WhatIfData): WhatIfRow[] {
  const rows = Array.from(data.positions.values, (position, i): WhatIfRow => {
    const [did, would] = [data.did.values[i], data.would.values[i]];
    const [id, didId] = [data.ids.values[i], data.did_ids.values[i]];
    return {
      position,
      id: id < 0 ? didId : id,
      didId,
      confidence: data.confidence.values[i],
      score: data.score.values[i],
      chance: [at(data.chance, i, 0), at(data.chance, i, 1)],
      did,
      would,
      difference: differenceOf(did, would, id === didId),
    };
  });
  const rank = (row: WhatIfRow): number => (row.difference === "neither" ? 1 : 0);
  const score = ({ score: own }: WhatIfRow): number => (Number.isFinite(own) ? own : -Infinity);
  return rows.sort(
    (a, b) =>
      rank(a) - rank(b) ||
      (score(b) > score(a) ? 1 : score(b) < score(a) ? -1 : 0) ||
      a.position - b.position,
  );
}

/** The result in a sentence. */
export function whatIfSentence(
  rows: readonly WhatIfRow[],
  data: WhatIfData,
  stepNumber: number,
): string {
  const count = (...kinds: Difference[]): number =>
    rows.filter(({ difference }) => kinds.includes(difference)).length;
  const did = plural(count("same", "other", "dropped"), "token");
  if (data.refusal) return `Step ${stepNumber} committed ${did}. ${data.refusal}`;
  if (data.own && !count("added", "dropped", "other"))
    return `These are the run's own settings: the rule commits exactly the ${did} that step ${stepNumber} committed.`;
  const would = plural(count("same", "other", "added"), "token");
  const changes = [
    [count("added"), "added"],
    [count("dropped"), "left out"],
    [count("other"), "with another token"],
  ] as const;
  const words = changes.flatMap(([n, what]) => (n ? [`${n} ${what}`] : []));
  const differ = words.length ? words.join(", ") : "the same tokens";
  return `Step ${stepNumber} committed ${did}. With these settings it would have committed ${would}: ${differ}.`;
}

/** Whether the result is certain, in a sentence. */
export function certaintyWords({ unknown, refusal }: WhatIfData): string {
  if (refusal) return "";
  if (!unknown.length)
    return "Exact: the rule chose from what this step proposed; no forward was computed.";
  return "Not certain. " + unknown.join(" ");
}

/** The probability of a draw in words; empty if it is certain. */
export function chanceWords([low, high]: readonly [number, number]): string {
  if (Number.isNaN(low) || low >= 1) return "";
  const [from, to] = [percent(low), percent(high)];
  return from === to ? from : `${from} to ${to}`;
}

/** The same in a table. A token that is not drawn, such as padding after the end, has a dash. */
export function drawnWords(chance: readonly [number, number]): string {
  return Number.isNaN(chance[0]) ? "–" : chanceWords(chance) || "certain";
}

/** A score in words; one that ranks last has no number. */
export function scoreWords(score: number): string {
  if (Number.isNaN(score)) return "–";
  if (score < -1e30) return "last";
  const text = score.toFixed(4);
  return Number(text) === 0 ? text.replace("-", "") : text;
}

/** The label of a knob as in the settings form, which begins with a capital. */
export function knobLabel({ label }: Pick<WhatIfKnob, "label">): string {
  return label.charAt(0).toUpperCase() + label.slice(1);
}

/** The settings of a text, by name. */
function readSettings(text: string): Map<string, string> {
  return new Map(new URLSearchParams(text));
}

/**
 * Those of the settings that a run with the rule `runRule` can have: its rule may be another one
 * than that of the lane in which they were chosen.
 */
export function settingsFor(text: string, runRule: string): string {
  const settings = readSettings(text);
  const rule = settings.get("unmasker") ?? runRule;
  for (const key of settings.keys())
    if (key.includes(".") && !key.startsWith(rule + ".")) settings.delete(key);
  return writeSettings(settings);
}

/** The settings as a text without commas, which stand between the choices of a link. */
function writeSettings(settings: ReadonlyMap<string, string>): string {
  const found = new URLSearchParams([...settings]);
  found.sort();
  return found.toString();
}

/** The settings with a value of a knob of `rule`, or of the temperature, which has none. */
export function withSetting(
  text: string,
  { name, run, default: base }: Pick<WhatIfKnob, "name" | "run" | "default">,
  value: KnobValue,
  rule: string,
): string {
  const settings = readSettings(text);
  const key = rule ? `${rule}.${name}` : name;
  if (value === (run ?? base)) settings.delete(key);
  else settings.set(key, String(value));
  return writeSettings(settings);
}

/** The settings of another rule: those of the run's rule, and the temperature stays. */
export function withRule(text: string, rule: string, runRule: string): string {
  const heat = readSettings(text).get("temperature");
  const settings = new Map<string, string>();
  if (heat !== undefined) settings.set("temperature", heat);
  if (rule !== runRule) settings.set("unmasker", rule);
  return writeSettings(settings);
}

/** The range of a slider: a knob's own one, cut where its values stop to make a difference. */
export function sliderRange(knob: WhatIfKnob): { min: number; max: number; step: number } {
  const [low, high] = [knob.lo ?? 0, knob.hi ?? 100];
  const usual = knob.type === "int" ? 20 : 2;
  const known = Math.max(
    usual,
    4 * Number(knob.default),
    Number(knob.value),
    Number(knob.run ?? 0),
  );
  const max = Math.min(high, knob.type === "int" ? Math.ceil(known) : known);
  return { min: low, max, step: knob.type === "int" ? 1 : (max - low) / 200 };
}
