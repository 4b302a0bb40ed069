import type { LaneName } from "../race/messages.ts";
import type { Row } from "../race/lane.ts";
import type { Inspector } from "./inspector.ts";
import type { DriftData } from "./codes.ts";
import type { RowCell } from "./planned_row.ts";
import { isMissing } from "./view.ts";
import { Why, type Rules } from "./why.ts";

const FULL = 0; // as in `engine.core.events.KINDS`

/**
 * What is known of a row of a step without recorded plans; `rows` is the number of all rows,
 * `before` that of the steps before the run.
 */
export function unrecordedWords(step: Row, rows: number, before = 0): string {
  if (step.kind === FULL) return `Recomputed: step ${before + step.step + 1} computed every row.`;
  return `Step ${before + step.step + 1} computed up to ${step.rows} of ${rows} rows; which ones, is not recorded.`;
}

/** Why a row of a lane was recomputed or reused, as far as it is known. */
export function rowReason(inspector: Inspector, lane: LaneName, cell: RowCell): string {
  const frame = inspector.frames[lane];
  if (!frame) return "Reading …";
  if (!frame.plan.shape[0]) {
    const { rows, before } = inspector.store.lanes[lane];
    const row = rows.at(cell.step);
    const known = row ? unrecordedWords(row, frame.positions, before) : "";
    return inspector.offline ? known : known + " Press Record in the inspector to see why.";
  }
  const given = inspector.given(lane, "why");
  const rules = inspector.document<Rules>(lane, "why");
  if (!rules) return given && isMissing(given) ? given.missing : "Reading …";
  const drift = inspector.document<DriftData>(lane, "drift");
  return new Why(frame, rules, drift, cell).sentence();
}
