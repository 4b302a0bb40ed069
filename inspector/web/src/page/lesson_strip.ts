import { plural } from "../base/format.ts";
import { at, type NdArray } from "../inspect/arrays.ts";
import { DRIFT, NO_DATA } from "../inspect/codes.ts";
import type { Query } from "../inspect/slice.ts";
import type { Frame } from "../inspect/view.ts";

/** Which attention the strip of a lesson is about. */
export type Attention = "bidirectional" | "causal";

/** The drift codes of V in a step [layers, positions]. */
export interface StripDrift {
  cells: NdArray;
}

/** The slice that the strip reads. */
export function stripQuery(step: number): Query {
  return { view: "drift", part: "map", quantity: "v", step };
}

/** The part of a run's frame that the strip reads. */
export type StripFrame = Pick<Frame, "prompt" | "positions" | "steps" | "layers" | "revealed">;

const MOVED = 0.001; // 1 − cosine above which a row has drifted

/** A cell of the strip. */
export interface StripCell {
  position: number;
  /** Where the answer token is, seen from the one that was just committed. */
  side: "before" | "newest" | "after";
  /** The drift code of V; NO_DATA if it is unknown. Null: V cannot have changed. */
  code: number | null;
  /** Whether V drifted by more than 0.001. */
  moved: boolean;
}

/** The position that the step before committed; -1 if there is none. */
export function newestAt({ revealed }: Pick<StripFrame, "revealed">, step: number): number {
  // Positions that no step committed have the step -1.
  return step ? revealed.values.indexOf(step - 1) : -1;
}

/** The answer tokens around the `newest` one, with the drift of their V in a step and a layer. */
export function stripCells(
  frame: Omit<StripFrame, "revealed">,
  { cells: drift }: StripDrift,
  spot: { layer: number },
  newest: number,
  attention: Attention,
): StripCell[] {
  const layer = Math.min(spot.layer, frame.layers - 1);
  const cells: StripCell[] = [];
  for (let position = frame.prompt; position < frame.positions; position++) {
    const side = position < newest ? "before" : position === newest ? "newest" : "after";
    const kept = attention === "causal" && side === "before";
    const code = kept ? null : at(drift, layer, position);
    const moved = code !== null && code !== NO_DATA && DRIFT[code] > MOVED;
    cells.push({ position, side, code, moved });
  }
  return cells;
}

/** How many tokens drifted after the newest one was committed; if causal, none before it. */
export function stripWords(
  frame: StripFrame,
  spot: { step: number; layer: number },
  cells: readonly StripCell[],
  attention: Attention,
): string {
  const where = `Lane A, step ${spot.step + 1}, layer ${spot.layer + 1}: `;
  const newest = newestAt(frame, spot.step);
  if (newest < 0) return where + "no token was committed in the previous step.";
  const head = `${where}answer token ${newest - frame.prompt + 1} had just been committed. `;
  if (attention === "causal")
    return (
      head + "Causal attention: K and V of the tokens before it do not change, so 0 of them drift."
    );
  const before = cells.filter(({ moved, side }) => moved && side === "before").length;
  const after = cells.filter(({ moved }) => moved).length - before;
  const counts = `${plural(before, "answer token")} before it and ${after} from it on`;
  return `${head}${counts} drifted by more than ${MOVED}.`;
}
