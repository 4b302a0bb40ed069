/** Slices of the logit lens. */
import { take, type NdArray } from "../arrays.ts";
import { PASSES } from "../lens.ts";
import { mapSlice, numberIn, sliceOf, type Cutters, type Documents } from "./documents.ts";

const NOT_COMPUTED = 255;
const FACTS = ["step", "position", "compared", "differing", "predicted", "flips"] as const;

/** The pieces of the ids that an array has. */
function piecesOf(
  pieces: Record<string, unknown>,
  { values }: NdArray,
): { pieces: Record<string, unknown> } {
  const known = [...new Set(Array.from(values, String))].filter((id) => id in pieces);
  return { pieces: Object.fromEntries(known.map((id) => [id, pieces[id]])) };
}

/** The codes of a plane of layers by positions of the lens, at their places on the canvas. */
function onCanvas({ lens, frame }: Documents, plane: NdArray): NdArray {
  const [layers, count] = plane.shape;
  const codes = new Uint8Array(layers * frame.positions).fill(NOT_COMPUTED);
  for (let layer = 0; layer < layers; layer++)
    lens.position.values.forEach((position, place) => {
      codes[layer * frame.positions + position] = plane.values[layer * count + place];
    });
  return { shape: [layers, frame.positions], values: codes };
}

export const LENS_PARTS: Cutters = {
  facts: {
    needs: ["lens"],
    cut({ lens }) {
      const arrays = Object.fromEntries(FACTS.map((name) => [name, lens[name]]));
      return sliceOf(arrays, { shift: lens.shift });
    },
  },
  map: {
    needs: ["lens", "frame"],
    cut(documents, query) {
      const { lens } = documents;
      const codes = query.of === "token" ? lens.token_probs : lens.probs;
      const pass = PASSES.findIndex((name) => name === query.pass);
      const plane = take(take(codes, 0, numberIn(query, "probe")), 0, pass);
      return mapSlice(onCanvas(documents, plane), "layers", "positions");
    },
  },
  ids: {
    needs: ["lens"],
    cut({ lens }, query) {
      const ids = take(lens.ids, 0, numberIn(query, "probe"));
      const window = { token_from: 0, token_to: lens.position.shape[0] };
      return sliceOf({ ids }, { ...window, ...piecesOf(lens.pieces, ids) });
    },
  },
  layers: {
    needs: ["lens"],
    cut({ lens }, query) {
      const probe = numberIn(query, "probe");
      const ids = take(lens.ids, 0, probe);
      const final = take(ids, 1, ids.shape[1] - 1);
      const own = { stays: take(lens.stays, 0, probe), turned: take(lens.turned, 0, probe), final };
      return sliceOf(own, piecesOf(lens.pieces, final));
    },
  },
};
