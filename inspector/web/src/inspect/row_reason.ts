import type { LaneName } from "../race/messages.ts";
import type { Row } from "../race/lane.ts";
import type { Inspector } from "./inspector.ts";
import { canRecord } from "./inspector_options.ts";
import type { NdArray } from "./arrays.ts";
import type { RowCell } from "./planned_row.ts";
import {
  driftOfRows,
  planOfStep,
  singleRows,
  tokenRows,
  type PlanBits,
  type RowDrifts,
  type TokenRows,
} from "./plans.ts";
import { documentOf, type Query, type Slice } from "./slice.ts";
import { hasLevel, hasPlans, isMissing, type Missing } from "./view.ts";
import { Why, type Rules } from "./why.ts";

const FULL = 0; // as in `engine.core.events.KINDS`

/**
 * What is known of a row of a step without recorded plans. `name` is the step's, as "step 5"; `rows`
 * is the number of all rows.
 */
export function unrecordedWords(step: Row, name: string, rows: number): string {
  if (step.kind === FULL && step.rows >= rows) return `Recomputed: ${name} computed every row.`;
  return `In ${name}, up to ${step.rows} of ${rows} rows were computed; which ones is not recorded.`;
}

/**
 * Why a row of a lane was recomputed or reused, as far as it is known; null while that is read.
 * `get` gives the lane's slices.
 */
export function rowReason(
  inspector: Inspector,
  lane: LaneName,
  cell: RowCell,
  get: (query: Query) => Slice | Missing | undefined,
): string | null {
  const frame = inspector.frames[lane];
  if (!frame?.steps) return inspector.lackOf(lane);
  if (!hasPlans(frame)) {
    const own = inspector.store.lanes[lane];
    const row = own.rows.at(cell.step);
    if (own.foreign)
      return "Another engine decoded this run; its file does not say which rows were computed.";
    const name = `step ${own.stepNumber(cell.step)}`;
    const known = row ? unrecordedWords(row, name, frame.positions) : "";
    return canRecord(inspector) ? known + " Press Record in the inspector to see why." : known;
  }
  if (frame.causal)
    return "Autoregressive decoding reads each token once and keeps its keys and values.";
  const sight = frame.sight.values[cell.step];
  if (cell.position >= sight)
    return `Not in sight: this step attends to the first ${sight} rows only.`;
  const why = get({ view: "why" });
  const token = get(tokenRows(cell.position));
  const plan = get(planOfStep(cell.step));
  for (const one of [why, token, plan]) if (one && isMissing(one)) return one.missing;
  if (!isSlice(why) || !isSlice(token) || !isSlice(plan)) return null;
  const facts = {
    token: documentOf<TokenRows>(token),
    plan: documentOf<PlanBits>(plan),
    drifts: (quantity: string): NdArray | null => {
      const known = hasLevel(frame, "layers");
      const found = known ? get(driftOfRows(quantity, cell.step)) : undefined;
      return isSlice(found) ? singleRows(documentOf<RowDrifts>(found)) : null;
    },
  };
  return new Why(frame, documentOf<Rules>(why), facts, cell).sentence();
}

function isSlice(found: Slice | Missing | undefined): found is Slice {
  return found !== undefined && !isMissing(found);
}
