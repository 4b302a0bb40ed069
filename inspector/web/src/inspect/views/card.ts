import { write } from "../../base/dom.ts";
import { chance, plural } from "../../base/format.ts";
import { quoted } from "../../base/token_text.ts";
import { READING, UNREAD } from "../../base/unread.ts";
import type { Rgb } from "../../base/colours.ts";
import { inks } from "../../figures/inks.ts";
import type { HeatSpec, Series } from "../../figures/spec.ts";
import { imagePlace } from "../../race/images.ts";
import { placesOf, stepAt, stepAxis } from "../axes.ts";
import {
  DRIFT,
  DRIFT_AXIS,
  DRIFT_COLOURS,
  DRIFT_SCALE,
  NO_DATA,
  driftColour,
  driftText,
} from "../codes.ts";
import { writeFacts } from "../facts.ts";
import type { Panel } from "../panel.ts";
import type { RowCell } from "../planned_row.ts";
import { driftCode, siteDone, timesDone, tokenRows, type TokenRows } from "../plans.ts";
import { rowReason } from "../row_reason.ts";
import { SITES, SITE_WORDS } from "../sites.ts";
import { documentOf, type Slice } from "../slice.ts";
import { hasPlans, isMissing, isWhole, type Frame, type Missing, type View } from "../view.ts";
import { candidateList, candidateRow, candidatesOf, type CandidateData } from "./candidates.ts";

const COMPUTED: Rgb = [0, 158, 115];
/** The value of a cell of the map that was computed and has no drift; codes are below it. */
const NO_DRIFT = 300;
const MAP_COLOURS: readonly (Rgb | null)[] = Array.from({ length: NO_DRIFT + 1 }, (_, code) => {
  if (code === NO_DRIFT) return COMPUTED;
  return code < NO_DATA ? DRIFT_COLOURS[code] : null;
});
const V = SITES.indexOf("v");

/** The card of the chosen token: facts, reason, candidates, and its drifts. */
export const card: View = {
  title: "Token",
  level: "off",
  about: "",
  draw(panel) {
    const { position, lane } = panel.cursor;
    if (position === null) return;
    const { inspector } = panel;
    const cell = { ...panel.spot, position };
    const plans = hasPlans(panel.frame);
    const { token, lack } = plans ? readToken(panel, position) : { token: null, lack: null };
    drawFacts(panel, cell, token, lack);
    const why = panel.block("why", "p", "ds-why ds-wide");
    const reason = rowReason(inspector, lane, cell, (query) => panel.slice(query));
    write(why, reason ?? READING);
    drawCandidates(panel, cell);
    const figures = ["card-series", "card-map"].map((name) => panel.figure(name));
    for (const figure of figures) {
      figure.root.hidden = !plans;
      if (!token) figure.wait(lack);
    }
    if (!token) return;
    drawSeries(panel, cell, token);
    drawMap(panel, cell, token);
  },
};

/** What happened to a position; null while it is read (`lack` is null) or why it is missing. */
export function readToken(
  panel: Pick<Panel, "slice">,
  position: number,
): { token: TokenRows | null; lack: string | null } {
  const found = panel.slice(tokenRows(position));
  if (!found) return { token: null, lack: null };
  if (isMissing(found)) return { token: null, lack: found.missing };
  return { token: documentOf<TokenRows>(found), lack: null };
}

function drawFacts(
  panel: Panel,
  { step, layer, position }: RowCell,
  token: TokenRows | null,
  lack: string | null,
): void {
  const { frame } = panel;
  const revealed = frame.revealed.values[position];
  const later = revealed >= step ? ", becomes " + panel.text(position, frame.steps) : "";
  const facts: [string, string][] = [
    ["Token", panel.text(position, step) + later],
    ["Id", String(frame.ids.values[position])],
    ["Position", positionWords(panel, position)],
    ["Committed", committedWords(panel, position)],
  ];
  if (token) facts.push(["Recomputed", countWords(frame, token, { layer, position })]);
  else if (hasPlans(frame)) facts.push(["Recomputed", lack === null ? UNREAD : "not read"]);
  writeFacts(panel.block("head", "dl", "ds-facts ds-wide"), facts);
}

function positionWords(panel: Panel, position: number): string {
  const { frame } = panel;
  const place = position - frame.prompt;
  const words = `position ${position + 1}`;
  const image = imagePlace(panel.lane.images, position);
  if (place < 0) return image === null ? words : `${words}, ${image}`;
  const block = Math.floor((place + (frame.shared ?? 0)) / frame.block) + 1;
  return words + `, answer token ${place + 1}, block ${block}`;
}

function committedWords({ frame, lane }: Panel, position: number): string {
  const place = position - frame.prompt;
  if (place < 0) return "prompt";
  if (frame.before.values[position])
    return lane.start?.branch ? lane.knownWords(place) : "known before the first step";
  const revealed = frame.revealed.values[position];
  if (revealed < 0) return "not in this run";
  const sure = lane.at[place]?.sure ?? null;
  return (
    `at step ${lane.stepNumber(revealed)}` + (sure === null ? "" : ", confidence " + chance(sure))
  );
}

/** How often the row of a token was recomputed in a layer, of the steps that attend to it. */
export function countWords(
  { steps, sight }: Pick<Frame, "steps" | "sight">,
  token: TokenRows,
  { layer, position }: Pick<RowCell, "layer" | "position">,
): string {
  const counts = SITE_WORDS.map((name, site) => `${name} ${timesDone(token, steps, layer, site)}`);
  const seen = sight.values.filter((rows) => position < rows).length;
  const which = plural(seen, "step") + (seen < steps ? " with it in sight" : "");
  return `in layer ${layer + 1}, of ${which}: ` + counts.join(", ");
}

function drawCandidates(panel: Panel, { step, position }: RowCell): void {
  const node = panel.block("candidates", "p", "ds-wide");
  node.hidden = !hasPlans(panel.frame) || position < panel.frame.prompt;
  if (node.hidden) return;
  write(node, candidateWords(panel.slice(candidatesOf(step)), position, panel.number(step)));
}

/**
 * What the model gave for a position in a step, counted from 1. It is never empty, so that the
 * figures below stay where they are while `found` is read.
 */
export function candidateWords(
  found: Slice | Missing | undefined,
  position: number,
  stepNumber: number,
): string {
  if (!found) return READING;
  if (isMissing(found)) return found.missing;
  const data = documentOf<CandidateData>(found);
  const row = candidateRow(data, position);
  if (row < 0) return `At step ${stepNumber} it was not a candidate.`;
  const best = candidateList(data, row).map((one) => quoted(one.piece) + " " + chance(one.prob));
  return `At step ${stepNumber} it was a candidate: ${best.join(", ")}.`;
}

/** The drift code of a quantity of the row; NO_DATA if it is unknown. */
function codeOf(data: TokenRows, quantity: string, { step, layer }: RowCell): number {
  return driftCode(data, quantity, step, layer, NO_DATA);
}

/** The numbers of the steps at which a quantity of the row has a drift, and the drifts. */
function driftLine(
  { steps, first }: Frame,
  data: TokenRows,
  quantity: string,
  cell: RowCell,
): { xs: number[]; ys: number[] } {
  const code = (x: number): number => codeOf(data, quantity, { ...cell, step: x - 1 });
  const xs = placesOf(steps).filter((x) => code(x) !== NO_DATA);
  const ys = xs.map((x) => DRIFT[code(x)]);
  return { xs: xs.map((x) => first + x), ys };
}

function drawSeries(panel: Panel, cell: RowCell, data: TokenRows): void {
  const { frame } = panel;
  const { a, b, ink, new: fresh } = inks(panel.root);
  const line = (quantity: string, name: string, colour: string, dash: number[]): Series[] => {
    const points = driftLine(frame, data, quantity, cell);
    return [
      { name, colour, dash, ...points },
      { name: "", table: null, kind: "points", colour, ...points },
    ];
  };
  const { steps, first } = frame;
  const ticks = placesOf(steps, first).filter((x) => siteDone(data, x - first - 1, cell.layer, V));
  const revealed = frame.revealed.values[cell.position];
  panel.figure("card-series").show({
    about: { layer: cell.layer },
    title: `Drift of K and V of this token in layer ${cell.layer + 1}: 1 − cosine to the previous value`,
    x: stepAxis(steps, first),
    y: DRIFT_AXIS,
    series: [
      recomputedMarks(ticks, ink), // first: a reader's place at such a step is that of the drift
      ...line("k", "K", a, [5, 3]),
      ...line("v", "V", b, []),
    ],
    rules: revealed < 0 ? [] : [{ x: panel.number(revealed), colour: fresh, text: "committed" }],
    at: panel.number(cell.step),
    words: (x) => stepWords(panel, data, { ...cell, step: stepAt(x, steps, first) }),
    pick: (x, _, pin) => panel.pick({ step: stepAt(x, steps, first) }, pin),
    height: 200,
  });
}

/** Marks at the steps that recomputed V. Their height is no drift: the CSV file leaves them out. */
export function recomputedMarks(xs: readonly number[], colour: string): Series {
  const name = "V recomputed at this step";
  return { name, table: null, kind: "points", colour, size: 2, xs, ys: xs.map(() => 0.8) };
}

function stepWords(panel: Panel, data: TokenRows, cell: RowCell): string {
  const { step, layer } = cell;
  const drifts = ["k", "v"].map((name) => {
    const drift = driftText(codeOf(data, name, cell), isWhole(panel.frame, name));
    return `${name.toUpperCase()} ${drift}`;
  });
  const sites = SITE_WORDS.filter((_, site) => siteDone(data, step, layer, site));
  return `Step ${panel.number(step)}: ${drifts.join(", ")}; recomputed: ${sites.join(", ") || "nothing"}`;
}

/** What a cell without a value is, of a token that may be out of sight of some steps. */
export function blankWords({ sight }: Pick<Frame, "sight">, position: number): string {
  const always = sight.values.every((rows) => position < rows);
  return always ? "reused" : "reused, or not in sight";
}

function drawMap(panel: Panel, cell: RowCell, data: TokenRows): void {
  const { frame, cursor, inspector } = panel;
  const { position } = cell;
  const without = isWhole(frame, "v") ? "no previous value" : "no drift recorded";
  const look: Pick<HeatSpec, "colour" | "glyph" | "legend" | "plain"> = {
    colour: (code) => (code === NO_DRIFT ? COMPUTED : driftColour(code)),
    glyph: (code) => (code === NO_DRIFT ? "•" : ""),
    legend: {
      ...DRIFT_SCALE,
      items: [[COMPUTED, data.drift ? "computed, " + without : "computed", "•"]],
    },
    plain: (code) => (code === NO_DRIFT ? "computed" : DRIFT[code]),
  };
  const value = (step: number, layer: number): number | null => {
    if (!siteDone(data, step, layer, V)) return null;
    const code = codeOf(data, "v", { step, layer, position });
    return code === NO_DATA ? NO_DRIFT : code;
  };
  panel.figure("card-map").show({
    title: "Drift of V of this token: layer by step",
    key: `card${position},${cursor.lane}${inspector.key}`,
    x: panel.stepCells(),
    y: { name: "layer", count: frame.layers },
    value,
    cells: () => {
      const codes = new Uint16Array(frame.layers * frame.steps).fill(NO_DATA);
      for (let layer = 0, i = 0; layer < frame.layers; layer++)
        for (let step = 0; step < frame.steps; step++) codes[i++] = value(step, layer) ?? NO_DATA;
      return { codes, palette: MAP_COLOURS };
    },
    about: { quantity: "v" },
    ...look,
    blank: blankWords(frame, position),
    unit: "1 - cosine",
    words: (step, layer) =>
      `Layer ${layer + 1}, ` + stepWords(panel, data, { step, layer, position }),
    pick: (step, layer, pin) => panel.pick({ step, layer }, pin),
    at: { x: cell.step, y: cell.layer },
    height: 200,
  });
}
