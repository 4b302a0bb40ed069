/** What a layer computes for a row. */
import { SITES } from "./sites.ts";
import type { Control } from "./view.ts";

/** The names of the recorded quantities, by their names in a trace (`engine.core.events`). */
export const QUANTITY_NAMES: Readonly<Record<string, string>> = {
  k: "K",
  v: "V",
  attn: "attention output",
  ffn: "feed-forward output",
  q0: "query of the first head",
};

/** The recorded quantities, as the options of a control. */
export const QUANTITY_OPTIONS: readonly (readonly [string, string])[] =
  Object.entries(QUANTITY_NAMES);

/** The four sites of a layer that a cache may reuse, as the options of a control. */
export const SITE_OPTIONS = SITES.map((site, i) => [String(i), QUANTITY_NAMES[site]] as const);

/** The control that chooses between all rows and those of the answer. */
export const ROWS_CONTROL: Control = {
  name: "rows",
  label: "Rows",
  value: "all",
  options: [
    ["all", "all"],
    ["answer", "in the answer"],
  ],
};

/** What follows "rows" where `ROWS_CONTROL` has chosen those of the answer, or not. */
export function rowsWhere(answer: boolean): string {
  return answer ? " in the answer" : "";
}
