/** Slices of the changes of experts. */
import type { NdArray } from "../arrays.ts";
import { planeCodes } from "../planes.ts";
import { mapSlice, numberIn, sliceOf, type Cutters } from "./documents.ts";

/** Rows from position `from` on by the number of changed experts [n, layers, active + 1]. */
function rowsByChanges(changes: NdArray, active: number, from: number): NdArray {
  const [steps, layers, positions] = changes.shape;
  const kinds = active + 1;
  const rows = new Uint16Array(steps * layers * kinds);
  for (let cell = 0; cell < steps * layers; cell++)
    for (let x = from; x < positions; x++) {
      const found = changes.values[cell * positions + x];
      if (found < kinds) rows[cell * kinds + found]++;
    }
  return { shape: [steps, layers, kinds], values: rows };
}

export const EXPERTS: Cutters = {
  facts: {
    needs: ["experts"],
    cut({ experts: { active, count, probe_step } }) {
      return sliceOf({ probe_step }, { active, count });
    },
  },
  counts: {
    needs: ["experts"],
    cut({ experts: { active, changes, probed } }, query) {
      const from = numberIn(query, "position_from");
      return sliceOf({
        rows: rowsByChanges(changes, active, from),
        probed: rowsByChanges(probed, active, from),
      });
    },
  },
  map: {
    needs: ["experts"],
    cut({ experts: { changes } }, query) {
      const [steps, layers, positions] = changes.shape;
      const ofStep = query.step !== undefined;
      const place = [numberIn(query, "step"), numberIn(query, "layer"), 0];
      const values = planeCodes(changes, { rows: ofStep ? 1 : 0, columns: 2, at: place });
      const shape = [ofStep ? layers : steps, positions];
      return mapSlice({ shape, values }, ofStep ? "layers" : "steps", "positions");
    },
  },
  probed: {
    needs: ["experts"],
    cut({ experts: { probed } }, query) {
      const [, layers, positions] = probed.shape;
      const place = [numberIn(query, "probe"), 0, 0];
      const values = planeCodes(probed, { rows: 1, columns: 2, at: place });
      return mapSlice({ shape: [layers, positions], values }, "layers", "positions");
    },
  },
};
