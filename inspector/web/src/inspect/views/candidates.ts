import { make } from "../../base/dom.ts";
import { chance, plural } from "../../base/format.ts";
import { headedTable } from "../../base/table.ts";
import { quoted, type Piece } from "../../base/token_text.ts";
import { at, type NdArray } from "../arrays.ts";
import { MASK_AGAIN } from "../inspector_options.ts";
import type { Panel } from "../panel.ts";
import { CODE_COLOURS, CODES, plainProbability, shareScale } from "../probability.ts";
import { documentOf, type Query } from "../slice.ts";
import { isMissing, type View } from "../view.ts";

/** The candidates of a step, N of them with their K most likely tokens. */
export interface CandidateData {
  /** [N]: the position of each candidate. */
  position: NdArray;
  /** [N, K]: the most likely tokens and their probabilities, in falling order. */
  ids: NdArray;
  probs: NdArray;
  /** [N]: the rank of the token that this step committed there, 255 for none of the K. */
  chosen: NdArray;
  pieces: Partial<Record<string, Piece>>;
}

/** The slice of the candidates of a step. */
export function candidatesOf(step: number): Query {
  return { view: "candidates", part: "list", step };
}

/** One of the most likely tokens of a candidate. */
export interface LikelyToken {
  id: number;
  /** Undefined if the text of the token is unknown. */
  piece: Piece | undefined;
  prob: number;
  /** Whether the step committed it. */
  chosen: boolean;
}

const SURE_SCALE = shareScale("probability of the most likely token");
const HEIGHT = 360;

/** The row of a candidate, -1 if the position was none in that step. */
export function candidateRow(data: CandidateData, position: number): number {
  return data.position.values.indexOf(position);
}

/** The most likely tokens of a candidate, in falling order. */
export function candidateList(data: CandidateData, row: number): LikelyToken[] {
  return Array.from({ length: data.ids.shape[1] }, (_, rank) => {
    const id = at(data.ids, row, rank);
    const prob = at(data.probs, row, rank);
    return { id, piece: data.pieces[id], prob, chosen: data.chosen.values[row] === rank };
  });
}

/** The candidates of each step, and branches from it. */
export const candidates: View = {
  title: "Candidates",
  level: "steps",
  about:
    "The answer tokens that each step could have committed, with the model's most likely tokens and their probabilities. " +
    "Orange dots mark committed tokens. Choose a cell to see its list.",
  branching:
    "A button beside the list starts a branch, which continues from before that step with another token, or with a token masked again. The run shown here does not change.",
  controls: [
    {
      name: "settings",
      label: "Branch with",
      value: "parent",
      options: [
        ["parent", "this run's settings"],
        ["form", "lane B's settings in the form"],
      ],
    },
  ],
  draw(panel) {
    const { frame, cursor, inspector } = panel;
    const { step } = panel.spot;
    const place = cursor.position === null ? null : cursor.position - frame.prompt;
    drawHeat(panel, step, place !== null && place >= 0 ? place : null);
    const box = panel.block("list", "div", "ds-branch");
    const run = [inspector.key, cursor.lane].join();
    const found = panel.slice(candidatesOf(step));
    box.hidden = !found && box.dataset.run !== run; // the keys of another run would branch from this one
    if (!found) return;
    box.dataset.run = run;
    const lack = isMissing(found) ? found.missing : "";
    const key = [inspector.key, cursor.lane, step, place, inspector.store.busy, lack].join();
    if (box.dataset.key === key) return;
    box.dataset.key = key;
    const nodes = isMissing(found)
      ? [make("p", "", lack)]
      : listNodes(panel, documentOf<CandidateData>(found), step, place);
    box.replaceChildren(...nodes);
  },
};

function drawHeat(panel: Panel, step: number, place: number | null): void {
  const { frame } = panel;
  const map = panel.map({
    figure: "candidates",
    query: { view: "candidates", part: "map" },
    rows: ["step", frame.steps],
    columns: ["position", frame.positions - frame.prompt],
    first: frame.prompt,
    height: HEIGHT,
  });
  if (!map) return;
  const dots: [number, number][] = [];
  for (let x = 0; x < frame.positions - frame.prompt; x++) {
    const y = frame.revealed.values[frame.prompt + x];
    if (y >= 0) dots.push([x, y]);
  }
  panel.figure("candidates").show({
    title: "Probability of the most likely token: step by answer token",
    key: "candidates" + map.key,
    x: panel.answers(),
    y: panel.stepCells(),
    value: (x, y) => {
      const code = map.at(y, frame.prompt + x);
      return code <= CODES ? code : null;
    },
    ...map.drawn(CODE_COLOURS, frame.prompt),
    colour: (code) => CODE_COLOURS[code],
    plain: plainProbability,
    legend: SURE_SCALE,
    blank: "not a candidate",
    unit: "probability",
    words: (x, y) => cellWords(panel, x, y),
    pick: (x, y, pin) => panel.pick({ position: frame.prompt + x, step: y }, pin),
    at: { x: place, y: step },
    dots,
    dotName: "committed",
    height: HEIGHT,
  });
}

function cellWords(panel: Panel, place: number, step: number): string {
  const { frame } = panel;
  const position = frame.prompt + place;
  const head = `Answer token ${place + 1}, step ${panel.number(step)}: `;
  const data = panel.partOrWords<CandidateData>(candidatesOf(step));
  if (typeof data === "string") return head + data;
  const row = candidateRow(data, position);
  if (row < 0) return head + "not a candidate, " + panel.text(position, step);
  const best = candidateList(data, row).map(
    ({ piece, prob, chosen }) =>
      quoted(piece) + " " + chance(prob) + (chosen ? " (committed)" : ""),
  );
  return head + best.join(", ");
}

/** What is shown of a step and, if it is not null, of an answer token in it. */
function listNodes(
  panel: Panel,
  data: CandidateData,
  step: number,
  place: number | null,
): HTMLElement[] {
  const { frame } = panel;
  const where = `before step ${panel.number(step)}`;
  const count = data.position.values.length;
  const head = make("p", "", `Step ${panel.number(step)}: ${plural(count, "candidate")}. `);
  const on = frame.causal ? [] : [branchKey(panel, "Branch from " + where, step)];
  if (place === null || place < 0)
    return [head, make("p", "ds-room", "Choose a cell to see its tokens."), ...on];
  const row = candidateRow(data, frame.prompt + place);
  const name = `Answer token ${place + 1}, ${where}:`;
  if (row >= 0)
    return [head, make("p", "", name), tokenTable(panel, data, row, step, place), ...on];
  const known = panel.text(frame.prompt + place, step);
  if (known === "mask")
    return [head, make("p", "", name + " masked, but not a candidate in this step."), ...on];
  const lane = panel.inspector.store.lanes[panel.cursor.lane];
  const again =
    frame.causal || !lane.canMaskAgain(place, step)
      ? []
      : [branchKey(panel, "Mask this token again and branch", step, [place, MASK_AGAIN])];
  return [head, make("p", "", `${name} ${known} is already known.`), ...again, ...on];
}

function tokenTable(
  panel: Panel,
  data: CandidateData,
  row: number,
  step: number,
  place: number,
): HTMLTableElement {
  const lines = candidateList(data, row).map(({ id, piece, prob, chosen }) => {
    const line = make("tr");
    const share = make("td", "", chance(prob, 4));
    share.style.backgroundImage = `linear-gradient(90deg, var(--ds-settled) ${100 * prob}%, transparent 0)`;
    const key = make("td");
    key.append(branchKey(panel, "Commit this token and branch", step, [place, id]));
    line.append(
      make("td", "", quoted(piece) + (chosen ? " ✓ committed" : "")),
      make("td", "", String(id)),
      share,
      key,
    );
    return line;
  });
  return headedTable(["Token", "Id", "Probability", ""], lines, "ds-candidates");
}

/** A button that branches before a step, with an edit of (answer token, id) or without one. */
function branchKey(
  panel: Panel,
  text: string,
  step: number,
  edit?: readonly [number, number],
): HTMLButtonElement {
  const { inspector, cursor } = panel;
  const { lane } = cursor;
  const key = make("button", "ds-play", text);
  key.type = "button";
  key.dataset.branch = edit ? edit.join() : "on";
  key.disabled = inspector.store.busy;
  key.addEventListener("click", () => {
    const settings = panel.choice("settings");
    const edits = edit ? [edit] : [];
    inspector.onBranch({ run: inspector.store.run, lane, settings, step, edits });
  });
  return key;
}
