/** The table of measured settings: cells, rows for a CSV file, and elements. */
import type { CsvCell } from "../base/download.ts";
import { make } from "../base/dom.ts";
import { duration, number, percent } from "../base/format.ts";
import { headCell, headedRow, headedTable } from "../base/table.ts";
import type { Point } from "./messages.ts";
import { hasIntervals, keptWords, speedWords } from "./words.ts";

const FROM: Readonly<Record<Point["from"], string>> = {
  published: "published or default",
  searched: "search",
  random: "random",
  fitted: "fitted to the drift",
};

/** The columns of the table after the setting's name. */
export const COLUMNS: readonly { head: string; cell: (row: Point) => string }[] = [
  { head: "from", cell: (row) => FROM[row.from] },
  { head: "prompts", cell: (row) => `${row.prompts} ${row.tested ? "new" : "of the search"}` },
  { head: "times as fast (95 %)", cell: speedWords },
  { head: "kept (95 %)", cell: (row) => keptWords(row) },
  {
    head: "gained, lost",
    cell: ({ kept }) => (!kept || kept.p === null ? "–" : `${kept.gained}, ${kept.lost}`),
  },
  { head: "p", cell: ({ kept }) => kept?.p?.toPrecision(2) ?? "–" },
  { head: "recomputed", cell: (row) => percent(row.recomputed) },
  { head: "GFLOPs", cell: (row) => number(row.gflops) },
  { head: "time a run", cell: (row) => duration(row.ms) },
  { head: "Pareto front", cell: (row) => (row.front ? "yes" : "") },
];

/** The rows of the CSV file: plain numbers. */
export function settingRows(rows: readonly Point[]): CsvCell[][] {
  const head = [
    "setting", "from", "new_prompts", "prompts", "speed_up", "speed_up_low", "speed_up_high", "kept", "kept_low", "kept_high",
    "gained", "lost", "p", "recomputed", "gflops", "ms", "front", "chosen",
  ]; // prettier-ignore
  const end = (row: Point, value: CsvCell): CsvCell => (hasIntervals(row) ? value : null);
  return [
    head,
    ...rows.map((row) => [
      row.name, row.from, String(row.tested), row.prompts,
      row.speed_up, end(row, row.speed_up_low), end(row, row.speed_up_high),
      row.kept?.share, end(row, row.kept?.low), end(row, row.kept?.high),
      row.kept?.gained, row.kept?.lost, row.kept?.p,
      row.recomputed, row.gflops, row.ms, String(row.front), String(row.chosen ?? false),
    ]), // prettier-ignore
  ];
}

/** The table; `race` is called with the name of a setting whose race is wanted. */
export function settingTable(
  rows: readonly Point[],
  race: (name: string) => void,
): HTMLTableElement {
  const heads = ["setting", ...COLUMNS.map(({ head }) => head), "race"];
  const lines = rows.map((row) => {
    const first = headCell("row", row.name + (row.chosen ? " (chosen)" : ""));
    const key = make("button", "ds-play", "Race");
    key.type = "button";
    key.dataset.adviceRace = row.name;
    key.setAttribute("aria-label", `Race ${row.name} against plain decoding`);
    key.addEventListener("click", () => race(row.name));
    const last = make("td");
    last.append(key);
    return headedRow(first, [...COLUMNS.map(({ cell }) => make("td", "", cell(row))), last]);
  });
  return headedTable(heads, lines);
}
