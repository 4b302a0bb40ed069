import { make, part, reachable, write } from "../../base/dom.ts";
import { chance, number, plural } from "../../base/format.ts";
import { headedTable } from "../../base/table.ts";
import { quoted } from "../../base/token_text.ts";
import type { Panel } from "../panel.ts";
import { documentOf, type Query } from "../slice.ts";
import { isMissing, type View } from "../view.ts";
import {
  certaintyWords,
  chanceWords,
  DIFFERENCES,
  drawnWords,
  OUTCOMES,
  scoreWords,
  settingsFor,
  whatIfRows,
  whatIfSentence,
  type WhatIfData,
  type WhatIfRow,
} from "../what_if.ts";
import { WhatIfForm } from "../what_if_form.ts";

const NO_SERVER =
  "A replay file has no server, and the rule that chooses the tokens is the engine's own. Open the run in the app to ask what a step would have committed.";
const CAUSAL =
  "This lane is decoded autoregressively: each forward commits the next token, so there is no rule that could have chosen others.";
/** Rows of the table beyond those that either result commits. */
const OTHERS = 24;

const FORMS = new WeakMap<Panel, WhatIfForm>();

/** The settings that the lane of the cursor can have: both lanes share what was chosen. */
function settingsOf(panel: Panel): string {
  const { unmasker } = panel.frame;
  const chosen = panel.choice("settings");
  return unmasker ? settingsFor(chosen, unmasker) : chosen;
}

/** What a step would have committed, and whether that is certain. */
function queryOf(panel: Panel): Query {
  const settings = settingsOf(panel);
  const query: Query = { view: "what_if", part: "step", step: panel.spot.step };
  return settings ? { ...query, settings } : query;
}

/** What each step would have committed under other settings, and a branch with them. */
export const whatIf: View = {
  title: "What if",
  level: "steps",
  causal: CAUSAL,
  about:
    "The tokens that the step at the cursor would have committed with another threshold, factor, score, temperature or unmasker, beside those that it did commit. " +
    "The engine's own rule chooses again from what the step proposed, so no forward is computed.",
  branching: "One click continues from before that step with these settings.",
  controls: [{ name: "settings", label: "Settings", kept: true, value: "" }],
  draw(panel) {
    if (panel.inspector.offline()) {
      panel.say(NO_SERVER);
      return;
    }
    const box = panel.block("form", "div", "ds-what-if ds-wide");
    keysOf(panel);
    const fault = panel.block("fault", "p", "ds-note ds-wide");
    const result = panel.block("result", "div", "ds-what-if-result ds-wide");
    drawReset(panel);
    const run = panel.cursor.lane + panel.inspector.key;
    const found = panel.slice(queryOf(panel));
    if (!found) {
      if (box.dataset.run === run) return;
      box.hidden = result.hidden = fault.hidden = true; // they are of another lane or run
      removeBranch(panel);
      return;
    }
    fault.hidden = !isMissing(found);
    result.hidden = isMissing(found);
    if (isMissing(found)) {
      box.hidden = box.dataset.run !== run; // it is filled for another run
      write(fault, found.missing);
      removeBranch(panel);
      return;
    }
    const data = documentOf<WhatIfData>(found);
    box.hidden = false;
    box.dataset.run = run;
    formOf(panel, box).draw(data, run);
    drawBranch(panel, data);
    drawResult(panel, result, data);
  },
};

function formOf(panel: Panel, box: HTMLElement): WhatIfForm {
  const known =
    FORMS.get(panel) ??
    new WhatIfForm(box, {
      settings: () => panel.choice("settings"),
      change: (settings) => {
        panel.set("settings", settings);
      },
    });
  FORMS.set(panel, known);
  return known;
}

/** The box of the keys; it comes before the result. */
function keysOf(panel: Panel): HTMLElement {
  return panel.block("keys", "div", "ds-what-if-keys ds-wide");
}

/** The key that goes back to the run's settings. */
function drawReset(panel: Panel): void {
  const box = keysOf(panel);
  let key = box.querySelector<HTMLButtonElement>("[data-what-if=reset]");
  if (!key) {
    key = keyOf("reset", "Back to this run's settings");
    key.addEventListener("click", () => {
      FORMS.get(panel)?.reset();
      panel.set("settings", "");
    });
    box.append(key);
  }
  key.setAttribute("aria-disabled", String(!settingsOf(panel)));
}

/** Remove the key that branches: no answer has its settings. */
function removeBranch(panel: Panel): void {
  const box = keysOf(panel);
  box.querySelector("[data-what-if=branch]")?.remove();
  delete box.dataset.key;
}

/** The key that branches with the settings of an answer. */
function drawBranch(panel: Panel, data: WhatIfData): void {
  const { inspector } = panel;
  const { lane } = panel.cursor;
  const box = keysOf(panel);
  const { step } = panel.spot;
  const key = [inspector.key, lane, step, data.query, inspector.store.busy].join();
  if (box.dataset.key === key) return;
  box.dataset.key = key;
  const on = keyOf("branch", `Branch from before step ${panel.number(step)} with these settings`);
  on.disabled = inspector.store.busy || !data.possible;
  on.addEventListener("click", () => {
    const settings = "?" + data.query;
    inspector.onBranch({ run: inspector.store.run, lane, settings, step, edits: [] });
  });
  const old = box.querySelector<HTMLElement>("[data-what-if=branch]");
  const held = old !== null && old === document.activeElement;
  old?.remove();
  box.append(on);
  if (held) on.focus();
}

function keyOf(name: string, text: string): HTMLButtonElement {
  const key = make("button", "ds-play", text);
  key.type = "button";
  key.dataset.whatIf = name;
  return key;
}

function drawResult(panel: Panel, box: HTMLElement, data: WhatIfData): void {
  const key = [panel.inspector.key, panel.cursor.lane, data.step, data.query].join();
  if (box.dataset.key !== key) writeResult(panel, box, data);
  box.dataset.key = key;
  reachable(part(box, ".ds-branch"));
}

function writeResult(panel: Panel, box: HTMLElement, data: WhatIfData): void {
  const rows = whatIfRows(data);
  if (!box.childElementCount) {
    const said = make("p", "ds-what-if-said");
    said.setAttribute("role", "status");
    box.append(
      said,
      make("p", "ds-room"),
      make("ul", "ds-what-if-notes"),
      make("div", "ds-branch"),
    );
  }
  const [said, certain, notes, table] = Array.from(box.children);
  write(said, whatIfSentence(rows, data, panel.number(data.step)));
  write(certain, certaintyWords(data));
  notes.replaceChildren(...data.notes.map((note) => make("li", "", note)));
  table.replaceChildren(...tableNodes(panel, rows, data));
}

function tableNodes(panel: Panel, rows: readonly WhatIfRow[], data: WhatIfData): HTMLElement[] {
  const first = rows.findIndex(({ difference }) => difference === "neither");
  const shown = first < 0 ? rows : rows.slice(0, first + OTHERS);
  const drawn = rows.some((row) => chanceWords(row.chance));
  const columns = ["Answer token", "Token", "Probability", "Score", "This run", "What if", ""];
  if (drawn) columns.splice(3, 0, "Drawn with");
  const lines = shown.map((row) => lineOf(panel, row, data, drawn));
  const table = headedTable(columns, lines, "ds-candidates");
  table.prepend(
    make("caption", "ds-hidden", "Tokens of the step, in the run and with these settings"),
  );
  const left = rows.length - shown.length;
  const more = left
    ? [make("p", "ds-room", `${plural(left, "candidate")} more, committed by neither.`)]
    : [];
  return [table, ...more];
}

function lineOf(panel: Panel, row: WhatIfRow, data: WhatIfData, drawn: boolean): HTMLElement {
  const line = make("tr");
  line.dataset.difference = row.difference;
  line.dataset.position = String(row.position);
  const text = quoted(data.pieces[row.id]);
  const was = row.difference === "other" ? ` (the run: ${quoted(data.pieces[row.didId])})` : "";
  const cells = [
    number(row.position - panel.frame.prompt + 1),
    text + was,
    Number.isNaN(row.confidence) ? "–" : chance(row.confidence, 4),
    scoreWords(row.score),
    OUTCOMES[row.did],
    data.refusal ? "?" : OUTCOMES[row.would],
    data.refusal ? "" : DIFFERENCES[row.difference],
  ];
  if (drawn) cells.splice(3, 0, drawnWords(row.chance));
  line.append(...cells.map((cell) => make("td", "", cell)));
  return line;
}
