import type { Rgb } from "../../base/colours.ts";
import { write } from "../../base/dom.ts";
import { number, percent, plural } from "../../base/format.ts";
import { OwnerCache } from "../../base/owner_cache.ts";
import { UNREAD } from "../../base/unread.ts";
import type { CellCodes, HeatSpec, LegendItem } from "../../figures/spec.ts";
import {
  acceptanceBreakEven,
  acceptanceLengths,
  acceptanceRate,
  acceptanceScatter,
  type Rule,
} from "../acceptance.ts";
import { at, type NdArray } from "../arrays.ts";
import { shortened } from "../axes.ts";
import { NO_DATA } from "../codes.ts";
import type { CellMap } from "../cell_map.ts";
import { writeFacts } from "../facts.ts";
import type {
  Guided,
  GuidedStep,
  GuiderData,
  GuiderTimes,
  Verdict,
  VerdictCode,
} from "../guided.ts";
import { canRecord } from "../inspector_options.ts";
import type { Panel } from "../panel.ts";
import { knownBefore, Ruling } from "../ruling.ts";
import { isMissing, viewOf, type Frame, type Missing } from "../view.ts";

type Look = readonly [colour: Rgb, text: string, glyph: string];

/** The code of an answer token that was known before the step. */
const KNOWN = 254;
const GREY: Rgb = [186, 194, 204];
const NOT_DRAFTED: Look = [GREY, "not drafted", "·"];
const NOT_CHECKED: Look = [GREY, "not checked", "·"];
const LOOKS: Record<Verdict, Look> = {
  accepted: [[0, 158, 115], "accepted", "✓"],
  mismatch: [[213, 94, 0], "first mismatch", "✗"],
  agreed: [[160, 216, 199], "agreed, but after the mismatch", "+"],
  refused: [[246, 202, 172], "not agreed, after the mismatch", "−"],
  fallback: [[0, 114, 178], "mismatch, committed by the fallback", "↓"],
  stop: [[45, 48, 58], "end of the text", "■"],
  filled: [[128, 136, 148], "filled after the end", "▪"],
  untold: [[240, 228, 66], "drafted, verdict not recorded", "?"],
};

/** The blocks of a guided run: their tag and class. */
const BLOCKS = {
  said: ["p", "ds-wide"],
  ruling: ["p", "ds-why ds-wide"],
  lack: ["p", "ds-note ds-wide"],
  numbers: ["dl", "ds-facts ds-wide"],
} as const;
type BlockName = keyof typeof BLOCKS;

/** What the guider accepted in each step, and what it cost. */
export const guider = viewOf<GuiderData>({
  title: "AR guider",
  level: "off",
  source: { view: "guider", part: "facts" },
  documents: ["time"],
  foreign:
    "This run was decoded by another engine: its file does not say whether a guider checked its tokens.",
  about:
    "A small autoregressive model, the guider, checks the tokens that the diffusion model drafts in each step. They are accepted up to the first mismatch (FlashDLM). " +
    "A grey cell with a dot was not checked.",
  draw(panel, data) {
    layOut(panel, data.asked);
    if (!data.asked) {
      drawUnguided(panel);
      return;
    }
    const { cursor, inspector } = panel;
    const time = inspector.document<GuiderTimes>(cursor.lane, "time");
    acceptanceRate(panel, data);
    const rule = drawRulings(panel, data);
    drawLack(panel, data.recorded);
    drawNumbers(panel, data, time);
    acceptanceLengths(panel, data);
    acceptanceBreakEven(panel, data, time);
    acceptanceScatter(panel, data, rule);
  },
});

const VERDICTS = new OwnerCache<CellMap, VerdictMap>();

/** Draw the verdicts; null while they are read, or if they are missing. */
function drawRulings(panel: Panel, about: Guided): Rule | null {
  const { cursor, frame, spot } = panel;
  const wide = frame.positions - frame.prompt;
  const map = panel.map({
    figure: "guider",
    query: { view: "guider", part: "map" },
    rows: ["step", frame.steps],
    columns: ["token", wide],
  });
  if (!map) return null;
  const code: VerdictCode = (step, place) => map.at(step, place);
  const facts = { about, frame, code, stops: panel.lane.start?.stop ?? [] };
  const rule: Rule = (step, position) => {
    const drafts = panel.partOrWords<GuidedStep>({ view: "guider", part: "step", step });
    const single = singleVerdicts(map, step, wide, () => {
      const window = { step_from: step, step_to: step + 1 };
      return panel.partOrWords<{ cells: NdArray }>({ view: "guider", part: "map", ...window });
    });
    if (typeof single === "string") return new Ruling(facts, single, step, position);
    return new Ruling({ ...facts, code: single }, drafts, step, position);
  };
  const found = VERDICTS.of(map, panel.inspector.key, () => verdictMap(map, about.names, frame));
  const { used } = found;
  write(block(panel, "said"), guiderWords(about, frame.steps, used < wide ? used : null));
  drawVerdicts(panel, about, { ...found, map, rule });
  const ruling =
    cursor.position === null
      ? "Choose an answer token to see why it was accepted or not."
      : rule(spot.step, cursor.position).sentence();
  write(block(panel, "ruling"), ruling);
  return rule;
}

/**
 * The verdicts of a step, token by token. If the map joins cells, `read` gives those of the step,
 * or words in their place.
 */
export function singleVerdicts(
  map: CellMap,
  step: number,
  wide: number,
  read: () => { cells: NdArray } | string,
): VerdictCode | string {
  if (![0, wide - 1].some((place) => map.joined(step, place))) return (y, x) => map.at(y, x);
  const found = read();
  return typeof found === "string" ? found : (_, place) => at(found.cells, 0, place);
}

/** The verdicts of the answer tokens that are shown. */
interface VerdictMap {
  codes: Uint8Array;
  used: number;
  /** The codes that occur. */
  present: ReadonlySet<number>;
}

/** The verdicts, counted once for each map: a large one has a million. */
export function verdictMap(map: CellMap, names: readonly Verdict[], frame: Frame): VerdictMap {
  const code: VerdictCode = (step, place) => map.at(step, place);
  const used = usedTokens(code, names, frame.steps, frame.positions - frame.prompt);
  const codes = verdictCodes(map, frame, used);
  return { used, codes, present: new Set(codes) };
}

/** What the map of the verdicts is drawn from. */
interface Verdicts extends VerdictMap {
  map: CellMap;
  rule: Rule;
}

function block(panel: Panel, name: BlockName): HTMLElement {
  const [tag, style] = BLOCKS[name];
  return panel.block(name, tag, style);
}

/** Add the parts of the view in their order, and hide those that a run without a guider lacks. */
function layOut(panel: Panel, asked: boolean): void {
  block(panel, "said");
  panel.figure("guider-rate");
  panel.figure("guider");
  for (const name of ["ruling", "lack", "numbers"] as const) block(panel, name).hidden = !asked;
  for (const name of ["guider-histogram", "guider-survival", "guider-even", "guider-scatter"])
    panel.figure(name);
  for (const [name, figure] of Object.entries(panel.figures))
    figure.root.hidden = !asked && name !== "guider";
}

/** The answer tokens that the map shows: up to the one after the last that was drafted. */
export function usedTokens(
  code: VerdictCode,
  names: readonly Verdict[],
  steps: number,
  wide: number,
): number {
  const filled = names.indexOf("filled");
  let last = 0;
  for (let y = 0; y < steps; y++)
    for (let x = last + 1; x < wide; x++) if (![NO_DATA, filled].includes(code(y, x))) last = x;
  return Math.min(last + 2, wide);
}

type MapLook = Pick<
  HeatSpec,
  "value" | "cells" | "blocks" | "colour" | "glyph" | "legend" | "blank" | "plain" | "words"
>;

function showMap(panel: Panel, look: MapLook, count: number, key: string): void {
  const { frame, cursor, spot } = panel;
  const place = cursor.position === null ? -1 : cursor.position - frame.prompt;
  const figure = panel.figure("guider");
  figure.root.classList.add("ds-wide");
  figure.show({
    title: "The guider's verdict: step by answer token",
    key: ["guider", cursor.lane, key, count].join(),
    x: shortened(panel.answers(), count),
    y: panel.stepCells(),
    unit: "verdict",
    pick: (x, y, pin) => panel.pick({ position: frame.prompt + x, step: y }, pin),
    at: { x: place < 0 || place >= count ? null : place, y: spot.step },
    height: Math.min(Math.max(frame.steps * 12 + 44, 240), 680),
    ...look,
  });
}

function drawUnguided(panel: Panel): void {
  write(
    block(panel, "said"),
    "This run has no guider: the unmasker committed every token without one. So there are no accepted tokens and no mismatches to show.",
  );
  const { frame } = panel;
  const items: LegendItem[] = [LOOKS.accepted, [LOOKS.mismatch[0], "mismatch", "✗"], NOT_CHECKED];
  const look: MapLook = {
    value: () => 0,
    colour: () => GREY,
    glyph: () => NOT_CHECKED[2],
    legend: { items },
    plain: () => NOT_CHECKED[1],
    words: (x, y) => {
      const text = panel.text(frame.prompt + x, y);
      return `Answer token ${x + 1}, ${text}, step ${panel.number(y)}: not checked by a guider`;
    },
  };
  showMap(panel, look, panel.answers().count, panel.inspector.key);
}

function drawVerdicts(panel: Panel, data: Guided, verdicts: Verdicts): void {
  const { codes, used, present, map, rule } = verdicts;
  const { frame } = panel;
  const look = (code: number): Look =>
    code < data.names.length ? LOOKS[data.names[code]] : NOT_DRAFTED;
  const seen = data.names.filter(
    (name, code) => ["accepted", "mismatch"].includes(name) || present.has(code),
  );
  const palette = Array.from({ length: NO_DATA + 1 }, (_, code) =>
    code === KNOWN ? null : look(code)[0],
  );
  showMap(
    panel,
    {
      value: (x, y) => {
        const found = codes[y * used + x];
        return found === KNOWN ? null : found;
      },
      ...verdictCells(map, codes, used, palette),
      colour: (code) => look(code)[0],
      glyph: (code) => look(code)[2],
      legend: { items: [...seen.map((name) => LOOKS[name]), NOT_DRAFTED] },
      blank: "known before",
      plain: (code) => look(code)[1],
      words: (x, y) =>
        map.joined(y, x)
          ? `Step ${panel.number(y)}, answer token ${x + 1}, ${map.words(y, x).trim()}: ${look(codes[y * used + x])[1]}`
          : rule(y, frame.prompt + x).short(),
    },
    used,
    map.key,
  );
}

/** The cells of the first `used` answer tokens, or, if the server joined cells, their blocks. */
export function verdictCells(
  map: CellMap,
  codes: Uint8Array,
  used: number,
  palette: CellCodes["palette"],
): Pick<HeatSpec, "cells" | "blocks"> {
  const blocks = map.joinedAs(map);
  if (!blocks) return { cells: () => ({ codes, palette }) };
  return { blocks: { ...blocks, x: { ...blocks.x, to: Math.min(blocks.x.to, used) } } };
}

/**
 * The codes of the first answer tokens in all steps; KNOWN for one that was known before, as were
 * all that are joined with it.
 */
export function verdictCodes(map: CellMap, frame: Frame, count: number): Uint8Array {
  const out = new Uint8Array(frame.steps * count);
  const known = (step: number, place: number): boolean => {
    const [row, from, to] = map.joinedWith(step, place);
    for (let x = from; x < to; x++) if (!knownBefore(frame, frame.prompt + x, row)) return false;
    return true;
  };
  for (let y = 0, i = 0; y < frame.steps; y++)
    for (let x = 0; x < count; x++) {
      const found = map.at(y, x);
      out[i++] = found === NO_DATA && known(y, x) ? KNOWN : found;
    }
  return out;
}

function ruleWords({ rule, k, tau }: Guided["rule"]): string {
  if (rule === "top1") return "the token is its first choice";
  if (rule === "topk") return `the token is one of its ${k} first choices`;
  if (rule === "rel_dlm")
    return `the diffusion model's highest probability is more than ${tau} times its own highest probability`;
  return `the token is one of its ${k} first choices, with at least ${tau} times the probability of its first choice`;
}

/** The guider, its rule, and how many tokens it accepted; `used`: those of the map, if not all. */
export function guiderWords(data: Guided, steps: number, used: number | null): string {
  const { about, rule, numbers } = data;
  const drafts = data.histogram.values.reduce((sum, count) => sum + count, 0);
  const vocabulary = about.shared ? "the same vocabulary" : "another vocabulary";
  const size = about.parameters ? number(about.parameters) + " parameters, " : "";
  const drafted = `${plural(numbers.accepted, "token")} of ${number(numbers.drafted)} drafted`;
  const rate = number(numbers.tokens / drafts, 2);
  return (
    `Guider ${about.name || rule.guider} (${size}${vocabulary}) agrees where ${ruleWords(rule)}. ` +
    `${drafted} were accepted in ${plural(drafts, "step")}, ${rate} tokens per step including the fallback's.` +
    (steps > drafts ? ` ${plural(steps - drafts, "other step")} drafted nothing.` : "") +
    hiddenWords(used)
  );
}

function hiddenWords(used: number | null): string {
  if (used === null) return "";
  return ` The map leaves out the answer tokens from ${used + 1} on. They were never drafted.`;
}

function drawLack(panel: Panel, recorded: boolean): void {
  const note = block(panel, "lack");
  note.hidden = recorded;
  if (recorded) return;
  const how = "Press Record above to run it again with the recorder on.";
  write(
    note,
    "This run has the result of each step, but not the verdict on each token: the verdicts after the first mismatch, both probabilities and the guider's own tokens are missing. " +
      (canRecord(panel.inspector) ? how : ""),
  );
}

function divergenceWords({ about, numbers }: Guided): string {
  if (numbers.kl !== null) return number(numbers.kl, 3) + " nats";
  return about.shared ? "not recorded" : "the vocabularies differ";
}

/** The guider's share of the times of a run, or why they are missing; null while they are read. */
export function timeWords(found: GuiderTimes | Missing | null): string {
  if (!found) return UNREAD;
  if (isMissing(found)) return found.missing;
  const { whole, prefill } = timeShares(found);
  return percent(whole) + " of the run, its prompt alone " + percent(prefill);
}

function drawNumbers(panel: Panel, data: Guided, time: GuiderTimes | null): void {
  const { about, numbers } = data;
  const found = panel.inspector.given(panel.cursor.lane, "time");
  const missing = found && isMissing(found) ? found : null;
  const ranks = [numbers.top1, numbers.top2, numbers.top5].map((part) => percent(part)).join(", ");
  const facts: [string, string][] = [
    ["Fallback rate", percent(numbers.fallback_rate) + " of the drafts"],
    ["Drafted tokens among the guider's first 1, 2 and 5 choices", ranks],
    ["Mean −log p of the draft by the guider", number(numbers.nll, 3) + " nats"],
    ["KL, diffusion model from guider", divergenceWords(data)],
    [
      "Accepted bytes that complete no token of the draft (straddle loss)",
      plural(numbers.straddle_loss, "byte") + (about.shared ? " (the same vocabulary)" : ""),
    ],
    [
      "Tokens per forward",
      `${number(numbers.per_forward, 2)} of the diffusion model, ${number(numbers.per_guider_forward, 2)} of the guider`,
    ],
    [
      "Tokens processed by the guider",
      `${plural(numbers.fed, "token")} in ${plural(numbers.forwards, "forward")}, after a prompt of ${number(numbers.prefilled)}`,
    ],
    [
      "Guider's share of FLOPs",
      `${percent(numbers.flops_share)} of the run, its prompt alone ${percent(numbers.prefill_share)}`,
    ],
    ["Guider's share of time", timeWords(time ?? missing)],
  ];
  writeFacts(block(panel, "numbers"), facts);
}

/** The shares of the guider, and of its prefill, in the time of the run. */
export function timeShares(time: GuiderTimes): { whole: number; prefill: number } {
  const add = (values: Iterable<number>): number => {
    let sum = 0;
    for (const value of values) sum += value;
    return sum;
  };
  const run = add(time.forward_ms.values) + add(time.decide_ms.values);
  const { shape } = time.guider_ms;
  const part = (i: number): number =>
    add(Array.from({ length: shape[0] }, (_, s) => at(time.guider_ms, s, i)));
  return { whole: part(0) / run, prefill: part(1) / run };
}
