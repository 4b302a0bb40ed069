import { make } from "../base/dom.ts";
import { headedTable, textRow } from "../base/table.ts";

/** A setting of a method, as texts. */
export interface Knob {
  key: string;
  label: string;
  default: string;
  range: string;
  help: string;
  background: string;
}

/** A figure from a paper, with the paper's conditions. */
export interface PublishedFigure {
  figure: string;
  conditions: string;
  gpu: string;
  lengths: string;
  shots: string;
  source: string;
  /** The table of the source; "none" if the figure is not from a table. */
  table: string;
}

/** Measurements with this repository: names of the columns, and rows of texts. */
export interface Measured {
  head: string[];
  rows: string[][];
}

/** A text in which code stands between backticks, as nodes; `plain` turns the rest into nodes. */
export function withCode(
  text: string,
  plain: (text: string) => (Node | string)[] = (part) => [part],
): (Node | string)[] {
  return text.split("`").flatMap((part, i) => (i % 2 ? [make("code", "", part)] : plain(part)));
}

/** The source of a figure, with its table if there is one. */
function sourceWords({ source, table }: Pick<PublishedFigure, "source" | "table">): string {
  return table === "none" ? source : source + ", " + table;
}

// Style sheets change the display of two of the tables, which would hide their structure from
// screen readers, so their roles are written out.
function cell(tag: "th" | "td", text: string, role: string): HTMLTableCellElement {
  const out = make(tag, "", text);
  out.setAttribute("role", role);
  return out;
}

function rowHead(text: string): HTMLTableCellElement {
  const out = cell("th", text, "rowheader");
  out.scope = "row";
  return out;
}

function line(...cells: HTMLElement[]): HTMLTableRowElement {
  const out = make("tr");
  out.setAttribute("role", "row");
  out.append(...cells);
  return out;
}

function table(
  style: string,
  titleId: string,
  names: readonly string[],
  rows: readonly HTMLElement[],
): HTMLTableElement {
  const out = make("table", style);
  out.setAttribute("role", "table");
  out.setAttribute("aria-labelledby", titleId);
  const [head, body] = [make("thead"), make("tbody")];
  for (const group of [head, body]) group.setAttribute("role", "rowgroup");
  head.append(line(...names.map((name) => cell("th", name, "columnheader"))));
  body.append(...rows);
  out.append(head, body);
  return out;
}

function knobRow(knob: Knob): HTMLElement {
  const head = rowHead(knob.label);
  head.append(make("code", "", knob.key));
  const meaning = cell("td", knob.help, "cell");
  if (knob.background) {
    const background = make("p");
    background.append(...withCode(knob.background));
    meaning.append(background);
  }
  const row = line(head, cell("td", knob.default, "cell"), cell("td", knob.range, "cell"), meaning);
  row.dataset.knob = knob.key;
  return row;
}

/** The table of a method's settings. */
export function knobTable(knobs: readonly Knob[]): HTMLTableElement {
  const names = ["Setting", "Default", "Range", "What it does"];
  return table("ds-method-knobs", "ds-methods-knobs-title", names, knobs.map(knobRow));
}

function publishedRow(one: PublishedFigure): HTMLElement {
  const figure = rowHead("");
  figure.append(make("strong", "", one.figure));
  const conditions = cell("td", "", "cell");
  conditions.append(...withCode(one.conditions));
  const rest = [
    ["GPU", one.gpu],
    ["Lengths", one.lengths],
    ["Shots", one.shots],
    ["Source", sourceWords(one)],
  ];
  const cells = rest.map(([label, text]) => {
    const out = cell("td", text, "cell");
    out.dataset.label = label;
    return out;
  });
  return line(figure, conditions, ...cells);
}

/** The table of figures from papers. */
export function publishedTable(rows: readonly PublishedFigure[]): HTMLTableElement {
  const names = ["Figure", "Conditions", "GPU", "Lengths", "Shots", "Source"];
  const lines = rows.map(publishedRow);
  return table("ds-method-published", "ds-methods-published-title", names, lines);
}

/** The table of measurements with this repository. */
export function measuredTable({ head, rows }: Measured): HTMLTableElement {
  return headedTable(head, rows.map(textRow), "ds-method-measured");
}
