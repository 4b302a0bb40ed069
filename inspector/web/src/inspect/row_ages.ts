import { bit } from "./arrays.ts";
import type { Frame } from "./view.ts";

const NEVER = 65535;

/** For each step and position, the steps since one value of the row was recomputed in a layer. */
class RowAges {
  private readonly ages: Uint16Array;
  private readonly positions: number;

  constructor(
    { steps, positions, plan }: Frame,
    readonly layer: number,
    readonly site: number,
  ) {
    this.positions = positions;
    this.ages = new Uint16Array(steps * positions).fill(NEVER);
    for (let step = 0; step < steps; step++) {
      for (let x = 0; x < positions; x++) {
        const before = step ? this.at(step - 1, x) : null;
        if (bit(plan, x, step, layer, site)) this.ages[step * positions + x] = 0;
        else if (before !== null) this.ages[step * positions + x] = before + 1;
      }
    }
  }

  /** The ages of the positions from `from` on, by steps; a value above all steps is no age. */
  part(from: number): Uint16Array {
    const wide = this.positions - from;
    const steps = this.ages.length / this.positions;
    const out = new Uint16Array(steps * wide);
    for (let step = 0; step < steps; step++) {
      const row = step * this.positions;
      out.set(this.ages.subarray(row + from, row + this.positions), step * wide);
    }
    return out;
  }

  /** Steps since the value was recomputed, 0 in that step; null if it was never computed. */
  at(step: number, position: number): number | null {
    const age = this.ages[step * this.positions + position];
    return age === NEVER ? null : age;
  }
}

const LATEST = new WeakMap<Frame, RowAges>();

/** The ages of a layer and site of a run with recorded plans. Of each run the latest is kept. */
export function rowAges(frame: Frame, layer: number, site: number): RowAges {
  const known = LATEST.get(frame);
  if (known?.layer === layer && known.site === site) return known;
  const ages = new RowAges(frame, layer, site);
  LATEST.set(frame, ages);
  return ages;
}
