/** Slices of views whose data are lists: errors, candidates and the guider's drafts. */
import { at, take, type NdArray } from "../arrays.ts";
import { SITES } from "../sites.ts";
import {
  mapSlice,
  numberIn,
  sliceOf,
  wholeSlice,
  type Cutters,
  type Documents,
} from "./documents.ts";
import { planeCodes } from "../planes.ts";

/** Rows of an array, given by their indices on its first axis. */
function rowsIn({ shape, values }: NdArray, rows: readonly number[]): NdArray {
  const size = shape.slice(1).reduce((product, side) => product * side, 1);
  const out = values.slice(0, rows.length * size);
  rows.forEach((row, i) => {
    out.set(values.subarray(row * size, (row + 1) * size), i * size);
  });
  return { shape: [rows.length, ...shape.slice(1)], values: out };
}

/** The places of a value in a list. */
function placesOf({ values }: NdArray, value: number): number[] {
  return Array.from(values).flatMap((one, i) => (one === value ? [i] : []));
}

const SUMS = ["step", "count", "mean_tv", "worst_tv", "flips"];

export const ERROR: Cutters = {
  facts: {
    needs: ["error"],
    cut({ error }) {
      const { arrays } = wholeSlice(error);
      const own = Object.fromEntries(SUMS.map((name) => [name, arrays[name]]));
      return sliceOf(own, { bounded: error.proxy !== null });
    },
  },
  map: {
    needs: ["error"],
    cut({ error }, query) {
      const [, layers, , positions] = error.error.shape;
      const site = SITES.indexOf(String(query.quantity));
      const place = [numberIn(query, "probe"), 0, site, 0];
      const values = planeCodes(error.error, { rows: 1, columns: 3, at: place });
      return mapSlice({ shape: [layers, positions], values }, "layers", "positions");
    },
  },
  mean: {
    needs: ["error"],
    cut: ({ error }, query) =>
      sliceOf({ mean: take(error.mean, 2, SITES.indexOf(String(query.quantity))) }),
  },
  recall: {
    needs: ["error"],
    cut({ error }, query) {
      const site = SITES.indexOf(String(query.quantity));
      return sliceOf({ recall: take(error.recall, 2, site), chance: take(error.chance, 2, site) });
    },
  },
  bound: {
    needs: ["error"],
    cut({ error }, query) {
      const layer = numberIn(query, "layer");
      const { proxy, true: truth } = error;
      if (!proxy || !truth) return sliceOf({});
      return sliceOf({ proxy: take(proxy, 1, layer), true: take(truth, 1, layer) });
    },
  },
  predictions: {
    needs: ["error"],
    cut({ error }, query) {
      const rows = placesOf(error.row, numberIn(query, "probe"));
      const { position, tv, top, pieces } = error;
      const own = {
        position: rowsIn(position, rows),
        tv: rowsIn(tv, rows),
        top: rowsIn(top, rows),
      };
      return sliceOf(own, { pieces });
    },
  },
};

const NO_CANDIDATE = 255;
const PROBABILITIES = 254;

function bestProbabilities({ candidates, frame }: Documents): NdArray {
  const cells = new Uint8Array(frame.steps * frame.positions).fill(NO_CANDIDATE);
  candidates.step.values.forEach((step, row) => {
    const place = step * frame.positions + candidates.position.values[row];
    cells[place] = roundHalfEven(PROBABILITIES * at(candidates.probs, row, 0));
  });
  return { shape: [frame.steps, frame.positions], values: cells };
}

/** Round as the server does: a half to the even number. */
function roundHalfEven(value: number): number {
  const low = Math.floor(value);
  return value - low === 0.5 ? low + (low % 2) : Math.round(value);
}

export const CANDIDATES: Cutters = {
  map: {
    needs: ["candidates", "frame"],
    cut: (documents) => mapSlice(bestProbabilities(documents), "steps", "positions"),
  },
  list: {
    needs: ["candidates"],
    cut({ candidates }, query) {
      const rows = placesOf(candidates.step, numberIn(query, "step"));
      const { position, ids, probs, chosen, pieces } = candidates;
      const own = {
        position: rowsIn(position, rows),
        ids: rowsIn(ids, rows),
        probs: rowsIn(probs, rows),
        chosen: rowsIn(chosen, rows),
      };
      return sliceOf(own, { pieces });
    },
  },
};

/** The drafts of a step: their arrays, those of the guider's tokens, and `span` from its first. */
function draftsOf({ guider }: Documents, step: number): ReturnType<typeof sliceOf> {
  const { arrays, facts } = wholeSlice(guider);
  const rows = placesOf(guider.draft_step, step);
  const spans = rowsIn(guider.span, rows);
  const known = Array.from(spans.values).filter((place) => place >= 0);
  const [first, end] = [Math.min(...known), Math.max(-1, ...known) + 1];
  const tokens = Array.from({ length: Math.max(end - first, 0) }, (_, i) => first + i);
  const out: Record<string, NdArray> = {};
  for (const [name, array] of Object.entries(arrays)) {
    if (name.startsWith("draft_")) out[name] = rowsIn(array, rows);
    if (name.startsWith("guider_")) out[name] = rowsIn(array, tokens);
  }
  const span = Int32Array.from(spans.values, (place) => (place < 0 ? place : place - first));
  const { pieces, guider_pieces } = facts;
  return sliceOf({ ...out, span: { shape: spans.shape, values: span } }, { pieces, guider_pieces });
}

export const GUIDER: Cutters = {
  facts: { needs: ["guider"], cut: ({ guider }) => wholeSlice(guider) },
  map: { needs: ["guider"], cut: ({ guider }) => mapSlice(guider.cells, "steps", "tokens") },
  step: {
    needs: ["guider"],
    cut: (documents, query) => draftsOf(documents, numberIn(query, "step")),
  },
  points: {
    needs: ["guider", "frame"],
    cut({ guider, frame }) {
      const { draft_step, draft_position, draft_p_f, draft_p_g } = wholeSlice(guider).arrays;
      const codes = Array.from(draft_step.values, (step, row) =>
        at(guider.cells, step, draft_position.values[row] - frame.prompt),
      );
      const verdict = { shape: draft_step.shape, values: Uint8Array.from(codes) };
      const found = { draft_step, draft_position, draft_p_f, draft_p_g, verdict };
      return sliceOf(found, { every: 1 });
    },
  },
};
