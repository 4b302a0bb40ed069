/** What the view "Expert changes" shows: rows by the number of their experts that changed. */
import { number, percent } from "../base/format.ts";
import { at, type NdArray } from "./arrays.ts";
import { CountTable, shareAbove } from "./tally.ts";

/** The experts of a row and of a layer, and the probed steps (`inspector.views.experts`). */
export interface ExpertFacts {
  active: number;
  count: number;
  probe_step: NdArray;
}

/** Rows by the number of their changed experts, of steps and of probes [.., layers, active + 1]. */
export interface ExpertRows {
  rows: NdArray;
  probed: NdArray;
}

/** The rows of a table with known experts, and those of which at least `least` changed. */
export function changedRows(table: NdArray, least: number): CountTable {
  const [steps, layers, kinds] = table.shape;
  const seen = new Int32Array(steps * layers);
  const above = new Int32Array(steps * layers);
  for (let cell = 0; cell < seen.length; cell++)
    for (let n = 0; n < kinds; n++) {
      const rows = table.values[cell * kinds + n];
      seen[cell] += rows;
      if (n >= least) above[cell] += rows;
    }
  const shape = [steps, layers];
  return new CountTable({ shape, values: seen }, { shape, values: above });
}

/** The mean number of changed experts of the rows of each layer; null without rows. */
export function meanChanges(table: NdArray): (number | null)[] {
  const [steps, layers, kinds] = table.shape;
  return Array.from({ length: layers }, (_, layer) => {
    let [rows, changes] = [0, 0];
    for (let step = 0; step < steps; step++)
      for (let n = 0; n < kinds; n++) {
        rows += at(table, step, layer, n);
        changes += n * at(table, step, layer, n);
      }
    return rows ? changes / rows : null;
  });
}

/** Shares of a layer's rows: computed again with other experts, and in use but not chosen now. */
export interface LayerChanges {
  changed: number | null;
  /** The mean number of changed experts. */
  mean: number | null;
  /** Of all feed-forward outputs in use at the probed steps, reused or computed in the step. */
  probed: number | null;
}

/** What is known of a layer, counted from 0, whose rows have `active` experts. */
export function layerWords(
  layer: number,
  { changed, mean, probed }: LayerChanges,
  active: number,
): string {
  const again =
    mean === null
      ? "no experts, or no row computed again"
      : `${percent(changed)} of the rows, ${number(mean)} of ${active} experts on average`;
  const used =
    probed === null
      ? ""
      : `; in use, of experts that the router would not choose now: ${percent(probed)}`;
  return `Layer ${layer + 1}: ${again}${used}`;
}

/** The sentences above the figures, with words of `recordedOf` and `rowsWhere`. */
export function expertSentence(
  facts: Pick<ExpertFacts, "active" | "count">,
  { rows, probed }: ExpertRows,
  least: number,
  { recorded, where }: { recorded: string; where: string },
): string {
  const found = changedRows(rows, least);
  const all = found.ofAll();
  const share = shareAbove(all);
  const chosen = `Each token uses ${facts.active} of ${facts.count} experts. `;
  if (share === null) return `${chosen}No ${recorded}row${where} was computed twice.`;
  const most = found.layers > 1 ? found.mostDrifted() : null;
  return (
    chosen +
    `In ${percent(share)} of the recomputations (${number(all.above)} of ${number(all.seen)}, over all ${recorded}layers and steps) a row${where} uses at least ${least} other ${least > 1 ? "experts" : "expert"} than before.` +
    (most ? ` Layer ${most.layer + 1} changes most (${percent(most.share)}).` : "") +
    probedSentence(probed, least)
  );
}

function probedSentence(probed: NdArray, least: number): string {
  const share = shareAbove(changedRows(probed, least).ofAll());
  if (share === null) return "";
  return ` In the probed steps, ${percent(share)} of the feed-forward outputs in use were computed with at least ${least} ${least > 1 ? "experts" : "expert"} that the router would not choose now.`;
}
