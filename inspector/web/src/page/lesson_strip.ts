import { plural } from "../base/format.ts";
import { at, type NdArray } from "../inspect/arrays.ts";
import { DRIFT, NO_DATA } from "../inspect/codes.ts";
import type { Frame } from "../inspect/view.ts";

/** Which attention the strip of a lesson is about. */
export type Attention = "bidirectional" | "causal";

/** What the strip reads of the document `drift` (`inspector.views`). */
export interface StripDrift {
  quantities: string[];
  /** Codes [steps, layers, quantities, positions]. */
  drift: NdArray;
}

/** The part of a run's frame that the strip reads. */
export type StripFrame = Pick<Frame, "prompt" | "positions" | "steps" | "layers" | "revealed">;

const MOVED = 0.001; // 1 − cosine above which a row has drifted

/** The answer tokens whose V drifted in a step: before the newest token, and from it on. */
export function movedTokens(
  frame: Omit<StripFrame, "revealed">,
  { drift, quantities }: StripDrift,
  spot: { step: number; layer: number },
  newest: number,
): [before: number, after: number] {
  const step = Math.min(spot.step, frame.steps - 1);
  const layer = Math.min(spot.layer, frame.layers - 1);
  const counts: [number, number] = [0, 0];
  for (let x = frame.prompt; x < frame.positions; x++) {
    const code = at(drift, step, layer, quantities.indexOf("v"), x);
    if (code !== NO_DATA && DRIFT[code] > MOVED) counts[x < newest ? 0 : 1]++;
  }
  return counts;
}

/** How many tokens drifted after the newest one was unmasked; if causal, none before it. */
export function stripWords(
  frame: StripFrame,
  drift: StripDrift,
  spot: { step: number; layer: number },
  attention: Attention,
): string {
  const where = `Step ${spot.step + 1}, layer ${spot.layer + 1}: `;
  // Positions that no step committed have the step -1.
  const newest = spot.step ? frame.revealed.values.indexOf(spot.step - 1) : -1;
  if (newest < 0) return where + "no token was unmasked in the previous step.";
  const head = `${where}answer token ${newest - frame.prompt + 1} had just been unmasked. `;
  if (attention === "causal")
    return (
      head + "Causal attention: K and V of the tokens before it do not change, so 0 of them drift."
    );
  const [before, after] = movedTokens(frame, drift, spot, newest);
  const counts = `${plural(before, "answer token")} before it and ${after} from it on`;
  return `${head}${counts} drifted by more than ${MOVED}.`;
}
