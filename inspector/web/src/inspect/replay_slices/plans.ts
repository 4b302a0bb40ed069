/** Slices of the recorded plans. */
import { at, bit, take, type NdArray } from "../arrays.ts";
import { SITES } from "../sites.ts";
import { mapSlice, numberIn, sliceOf, wholeSlice, type Cutters } from "./documents.ts";

/** The recomputed rows among the positions from `from` on, by step, layer and site. */
function countDone(plan: NdArray, positions: number, from: number): NdArray {
  const [steps, layers, sites, wide] = plan.shape;
  const done = new Uint16Array(steps * layers * sites);
  for (let cell = 0; cell < done.length; cell++) {
    for (let x = from; x < positions; x++)
      done[cell] += (plan.values[cell * wide + (x >> 3)] >> (7 - (x & 7))) & 1;
  }
  return { shape: [steps, layers, sites], values: done };
}

const NEVER = 65535;

/** Steps since a site was recomputed in a layer [S, T]; NEVER before the first time. */
export function rowAges(plan: NdArray, positions: number, layer: number, site: number): NdArray {
  const [steps] = plan.shape;
  const ages = new Uint16Array(steps * positions).fill(NEVER);
  for (let step = 0; step < steps; step++) {
    for (let x = 0; x < positions; x++) {
      const before = step ? ages[(step - 1) * positions + x] : NEVER;
      if (bit(plan, x, step, layer, site)) ages[step * positions + x] = 0;
      else if (before !== NEVER) ages[step * positions + x] = before + 1;
    }
  }
  return { shape: [steps, positions], values: ages };
}

export const PLAN: Cutters = {
  bits: {
    needs: ["plan"],
    cut({ plan }, query) {
      const ofStep = query.step !== undefined;
      const bits = take(plan.plan, ofStep ? 0 : 1, numberIn(query, ofStep ? "step" : "layer"));
      if (query.quantity === undefined) return sliceOf({ bits });
      const { shape, values } = take(bits, 1, SITES.indexOf(String(query.quantity)));
      return sliceOf({ bits: { shape: [shape[0], 1, shape[1]], values } });
    },
  },
  counts: {
    needs: ["plan", "frame"],
    cut: ({ plan, frame }, query) =>
      sliceOf({ done: countDone(plan.plan, frame.positions, numberIn(query, "position_from")) }),
  },
};

export const TOKEN: Cutters = {
  series: {
    needs: ["plan", "drift"],
    cut({ plan, drift }, query) {
      const [steps, layers] = plan.plan.shape;
      const position = numberIn(query, "position");
      const sites = new Uint8Array(steps * layers);
      for (let cell = 0; cell < sites.length; cell++) {
        const place = [Math.floor(cell / layers), cell % layers] as const;
        SITES.forEach((_, site) => {
          sites[cell] |= bit(plan.plan, position, ...place, site) << site;
        });
      }
      const found = { sites: { shape: [steps, layers], values: sites } };
      if (!drift.drift.shape[0]) return sliceOf(found, { quantities: drift.quantities });
      const moved = new Uint8Array(drift.quantities.length * sites.length);
      for (let i = 0; i < moved.length; i++) {
        const [quantity, cell] = [Math.floor(i / sites.length), i % sites.length];
        const place = [Math.floor(cell / layers), cell % layers] as const;
        moved[i] = at(drift.drift, ...place, quantity, position);
      }
      const shape = [drift.quantities.length, steps, layers];
      const drifts = { shape, values: moved };
      return sliceOf({ ...found, drift: drifts }, { quantities: drift.quantities });
    },
  },
};

export const SCHEDULE: Cutters = {
  kinds: { needs: ["schedule"], cut: ({ schedule }) => wholeSlice(schedule) },
  portion: {
    needs: ["schedule"],
    cut: ({ schedule }) => sliceOf({ portion: schedule.portion }),
  },
};

/** The ages of the rows of a layer. */
export const AGE: Cutters[string] = {
  needs: ["plan", "frame"],
  cut({ plan, frame }, query) {
    const site = SITES.indexOf(String(query.quantity));
    const ages = rowAges(plan.plan, frame.positions, numberIn(query, "layer"), site);
    return mapSlice(ages, "steps", "positions");
  },
};
