import { make } from "./dom.ts";

/** A cell of a CSV file. */
export type CsvCell = string | number | null | undefined;

/** Save a blob under a file name. */
export function save(name: string, blob: Blob): void {
  const link = make("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

function csvCell(value: CsvCell): string {
  if (value === null || value === undefined) return "";
  const text = String(value);
  // A text that a spreadsheet would take for a formula is preceded by an apostrophe.
  const risky = typeof value !== "number" && /^\s*[=+\-@]|^[\t\r\n]/.test(text);
  const safe = risky ? "'" + text : text;
  return /[",\n\r]/.test(safe) ? '"' + safe.replaceAll('"', '""') + '"' : safe;
}

/** Rows as the text of a CSV file. */
export function csv(rows: readonly (readonly CsvCell[])[]): string {
  return rows.map((row) => row.map(csvCell).join(",")).join("\n") + "\n";
}
