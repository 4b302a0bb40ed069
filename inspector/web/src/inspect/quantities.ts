/** What a layer computes for a row. */

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
export const SITE_OPTIONS: readonly (readonly [string, string])[] = [
  ["0", "K"],
  ["1", "V"],
  ["2", "attention output"],
  ["3", "feed-forward output"],
];
