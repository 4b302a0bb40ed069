import { make } from "../base/dom.ts";
import { number, percent } from "../base/format.ts";
import { headCell, headedRow } from "../base/table.ts";
import { termNodes } from "../page/glossary.ts";
import type { Lane } from "./lane.ts";
import type { Store } from "./store.ts";

/** Names and labels of the metrics of every run. */
const ROWS: readonly (readonly [string, string])[] = [
  ["forwards", "Forwards"],
  ["nfe", "Steps (NFE)"],
  ["full_steps", "Steps that compute all rows"],
  ["partial_steps", "Steps that compute some rows"],
  ["total_ms", "Engine time, ms"],
  ["forward_ms", "… in the network, ms"],
  ["decide_ms", "… deciding, ms"],
  ["ms_per_step", "ms per step"],
  ["tokens", "Tokens before the end"],
  ["text_nfe", "Steps until the text is complete"],
  ["text_ms", "Engine time until the text is complete, ms"],
  ["positions", "Positions committed"],
  ["tokens_per_s", "Tokens before the end, per second of the whole run"],
  ["positions_per_s", "Positions committed per second"],
  ["recomputed", "Token-layers recomputed"],
  ["gflops", "GFLOPs"],
  ["gflops_per_position", "GFLOPs per position"],
  ["cache_bytes", "Cache, bytes"],
  ["peak_memory_bytes", "Peak memory, bytes"],
];

/** Those of guided runs. */
const GUIDED_ROWS: readonly (readonly [string, string])[] = [
  ["guider_ms", "Guider, ms (part of deciding)"],
  ["guider_prefill_ms", "… of which prefill, ms"],
  ["gflops_guider", "Guider, GFLOPs"],
  ["guider_forwards", "Guider, forwards"],
  ["guider_tokens", "Guider, tokens processed"],
  ["tokens_per_nfe", "Tokens before the end per step"],
  ["tokens_per_guider_forward", "… per guider forward"],
  ["accepted", "Tokens accepted per step"],
  ["fallback_rate", "Steps that used the fallback"],
  ["guider_weight_bytes", "Guider, weights in bytes"],
  ["guider_cache_bytes", "Guider, cache in bytes"],
];

/** Those that are shares of 1, shown in percent. */
const SHARES = ["recomputed", "fallback_rate"];

/** Those that are times. */
const CLOCKED = [
  "total_ms",
  "text_ms",
  "forward_ms",
  "decide_ms",
  "ms_per_step",
  "tokens_per_s",
  "positions_per_s",
  "guider_ms",
  "guider_prefill_ms",
];

/** The metrics that the table of a race shows: names and labels. */
export function shownRows(
  lanes: readonly Pick<Lane, "end">[],
  timed: boolean,
): (readonly [string, string])[] {
  const guided = lanes.some((lane) => (lane.end?.metrics.guider_forwards ?? null) !== null);
  const rows = guided ? [...ROWS, ...GUIDED_ROWS] : ROWS;
  return rows.filter(([name]) => timed || !CLOCKED.includes(name));
}

/** A metric as the table shows it. */
export function metricText(name: string, value: number | null | undefined): string {
  return SHARES.includes(name) ? percent(value ?? null, 1) : number(value);
}

/** Draw the table of all numbers of a race. */
export function drawNumbers(target: HTMLElement, store: Store): void {
  const lanes = store.started;
  const heads = lanes.map(({ name, start }) =>
    headCell("col", name.toUpperCase() + ": " + start.title),
  );
  const seen = new Set<string>();
  const rows = shownRows(lanes, store.timed).map(([name, label]) => {
    const head = headCell("row");
    head.append(...termNodes(label, seen));
    const cells = lanes.map(({ end }) => make("td", "", metricText(name, end?.metrics[name])));
    return headedRow(head, cells);
  });
  target.replaceChildren(headedRow(headCell("col", "Measure"), heads), ...rows);
}
