/** Slices of the recorded plans. */
import { at, bit, type NdArray } from "../arrays.ts";
import { SITES } from "../sites.ts";
import { mapSlice, numberIn, sliceOf, wholeSlice, type Cutters } from "./documents.ts";

/** The part of an array [S, L, …] that belongs to a step, or to a layer. */
function ofStepOrLayer({ shape, values }: NdArray, step: number | null, layer: number): NdArray {
  const [steps, layers, ...rest] = shape;
  const size = rest.reduce((product, side) => product * side, 1);
  if (step !== null) {
    const from = step * layers * size;
    return { shape: [layers, ...rest], values: values.slice(from, from + layers * size) };
  }
  const out = values.slice(0, steps * size);
  for (let s = 0; s < steps; s++) {
    const from = (s * layers + layer) * size;
    out.set(values.subarray(from, from + size), s * size);
  }
  return { shape: [steps, ...rest], values: out };
}

/** The bits of one site in bits of all [rows, 4, bytes]. */
function ofSite({ shape, values }: NdArray, site: number): NdArray {
  const [rows, sites, wide] = shape;
  const out = values.slice(0, rows * wide);
  for (let row = 0; row < rows; row++) {
    const from = (row * sites + site) * wide;
    out.set(values.subarray(from, from + wide), row * wide);
  }
  return { shape: [rows, 1, wide], values: out };
}

/** The recomputed rows among the positions from `from` on, by step, layer and site. */
export function countDone(plan: NdArray, positions: number, from: number): NdArray {
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
      const step = query.step === undefined ? null : numberIn(query, "step");
      const bits = ofStepOrLayer(plan.plan, step, numberIn(query, "layer"));
      if (query.quantity === undefined) return sliceOf({ bits });
      return sliceOf({ bits: ofSite(bits, SITES.indexOf(String(query.quantity))) });
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
