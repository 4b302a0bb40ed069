/** The tables of a batch: cells, rows for CSV files, and elements. */
import type { CsvCell } from "../base/download.ts";
import { make } from "../base/dom.ts";
import { duration, number, percent, plural } from "../base/format.ts";
import { headCell, headedRow, headedTable, textRow } from "../base/table.ts";
import { visible } from "../base/token_text.ts";
import type { PromptRow, Row, Setting } from "./messages.ts";
import { runWords } from "./words.ts";

interface Column {
  head: string;
  cell: (row: Setting) => string;
}

function ratio(value: number | null): string {
  return value === null ? "–" : value.toFixed(2) + "×";
}

function intervalWords({ interval }: Setting): string {
  return interval ? interval.map((end) => percent(end)).join(" to ") : "–";
}

/** The columns of the settings' table. */
export const COLUMNS: readonly Column[] = [
  { head: "setting", cell: ({ name }) => name },
  { head: "runs", cell: ({ runs, failed }) => `${runs}${failed ? `, ${failed} failed` : ""}` },
  { head: "same tokens", cell: ({ agreement }) => percent(agreement) },
  { head: "95 %", cell: intervalWords },
  { head: "same answer", cell: ({ same_answer: same }) => percent(same) },
  { head: "right", cell: ({ right, known }) => (known ? `${right} of ${known}` : "–") },
  { head: "p", cell: ({ p }) => (p === null ? "–" : p.toPrecision(2)) },
  { head: "forwards", cell: ({ forwards }) => number(forwards) },
  { head: "to text end", cell: ({ text_forwards: forwards }) => number(forwards) },
  { head: "recomputed", cell: ({ recomputed }) => percent(recomputed) },
  { head: "time a run", cell: ({ ms }) => (ms === null ? "–" : duration(ms)) },
  { head: "a run", cell: ({ speed_up: faster }) => ratio(faster) },
  { head: "its text", cell: ({ text_speed_up: faster }) => ratio(faster) },
  { head: "tokens/s", cell: ({ tokens_per_s: rate }) => number(rate) },
];

/** The rows of the settings' CSV file: plain numbers. */
export function settingRows(settings: readonly Setting[]): CsvCell[][] {
  const names = [
    "name", "runs", "failed", "pairs", "agreement", "same_answer", "known", "right", "p",
    "forwards", "text_forwards", "recomputed", "ms", "speed_up", "text_speed_up", "tokens_per_s",
  ] as const; // prettier-ignore
  const head = [...names, "agreement_low", "agreement_high"];
  const rows = settings.map((row) => [...names.map((name) => row[name]), ...(row.interval ?? [])]);
  return [head, ...rows];
}

/** The rows of the runs' CSV file. */
export function runRows(rows: readonly Row[], settings: readonly Setting[]): CsvCell[][] {
  const names = [
    "known_answer", "reason", "agreement", "forwards", "text_forwards", "ms", "tokens",
    "recomputed", "question", "text", "message",
  ] as const; // prettier-ignore
  const found = rows.map((row) => [
    row.prompt + 1,
    settings.at(row.setting)?.name,
    row.right === null ? null : String(row.right),
    ...names.map((name) => row[name]),
  ]);
  return [["prompt", "setting", "right", ...names], ...found];
}

/** The table of the settings. */
export function settingTable(settings: readonly Setting[]): HTMLTableElement {
  const rows = settings.map((setting) => {
    const row = textRow(COLUMNS.map(({ cell }) => cell(setting)));
    row.cells[0].title = setting.title;
    return row;
  });
  const heads = COLUMNS.map(({ head }) => head);
  return headedTable(heads, rows);
}

function promptCell({ prompt, question, before, answer }: PromptRow): HTMLTableCellElement {
  const cell = headCell("row", `${prompt + 1}. ${visible(question)}`);
  const notes = [
    before ? `after ${plural(before, "worked example")}` : "",
    answer === null ? "" : "answer " + visible(answer),
  ].filter(Boolean);
  if (notes.length) cell.append(make("small", "", notes.join(" · ")));
  return cell;
}

function runCell(run: Row | undefined, name: string, open: (run: Row) => void): HTMLElement {
  const cell = make("td");
  cell.append(make("span", "ds-batch-run", runWords(run)));
  if (!run) return cell;
  const place = `${run.prompt}.${run.setting}`;
  const said = visible(run.reason === "done" ? run.text : run.message);
  const text = make("p", "ds-batch-text", said);
  text.dataset.batchPlace = `${place}.text`; // it can have the focus if it scrolls
  cell.append(text);
  if (run.setting && run.reason === "done") {
    const key = make("button", "ds-play", "Race");
    key.type = "button";
    key.dataset.batchRace = place;
    key.dataset.batchPlace = `${place}.race`;
    key.setAttribute("aria-label", `Race prompt ${run.prompt + 1}: ${name}, plain decoding beside`);
    key.addEventListener("click", () => open(run));
    cell.append(key);
  }
  return cell;
}

/** The table of some prompts; `open` is called with a run whose race is wanted. */
export function promptTable(
  prompts: readonly PromptRow[],
  settings: readonly Setting[],
  open: (run: Row) => void,
): HTMLTableElement {
  const rows = prompts.map((prompt) => {
    const cells = settings.map(({ name }, i) => runCell(prompt.runs[i], name, open));
    return headedRow(promptCell(prompt), cells);
  });
  return headedTable(["prompt", ...settings.map(({ name }) => name)], rows);
}
