/** Tables whose rows and columns have heads. */
import { make } from "./dom.ts";

/** The head of a row or of a column. */
export function headCell(scope: "row" | "col", text = ""): HTMLTableCellElement {
  const cell = make("th", "", text);
  cell.scope = scope;
  return cell;
}

/** A row of cells after its head. */
export function headedRow(
  head: HTMLTableCellElement,
  cells: readonly HTMLElement[],
): HTMLTableRowElement {
  const row = make("tr");
  row.append(head, ...cells);
  return row;
}

/** A row of texts, the first of which is its head. */
export function textRow([name, ...texts]: readonly string[]): HTMLTableRowElement {
  const cells = texts.map((text) => make("td", "", text));
  return headedRow(headCell("row", name), cells);
}

/** A table of rows below the heads of its columns. */
export function headedTable(
  heads: readonly string[],
  rows: readonly HTMLElement[],
  style = "",
): HTMLTableElement {
  const [table, top, head, body] = [make("table", style), make("tr"), make("thead"), make("tbody")];
  top.append(...heads.map((text) => headCell("col", text)));
  head.append(top);
  body.append(...rows);
  table.append(head, body);
  return table;
}
