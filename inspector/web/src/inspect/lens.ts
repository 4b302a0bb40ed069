/** The logit lens of probed steps: what each layer would predict, and from where it stays. */
import { quoted, type Piece } from "../base/token_text.ts";
import { at, type NdArray } from "./arrays.ts";
import type { Query } from "./slice.ts";

/** The passes of a probed step: the run's own, and the exact one on its canvas. */
export const PASSES = ["run", "exact"] as const;
export type Pass = (typeof PASSES)[number];

/** The probed steps of a run, E of them, with a lens of n positions and L layers. */
export interface LensData {
  /** [E]: the probed steps. */
  step: NdArray;
  /** [n]: positions of the canvas, which rise. */
  position: NdArray;
  /** [E, L]: positions with a hidden state in both passes, and those whose best tokens differ. */
  compared: NdArray;
  differing: NdArray;
  /** [E]: positions with logits in both passes, and those whose best tokens differ. */
  predicted: NdArray;
  flips: NdArray;
  /** How far before its token a hidden row is. */
  shift: number;
}

/** The layers, from 0, at which the tokens of a probed step are decided; -1 for none. */
export interface LensLayers {
  /** [2, n]: the first layer from which the best token is that of the last one. */
  stays: NdArray;
  /** [n]: the first layer from which the run's token differs from the exact one to the end. */
  turned: NdArray;
  /** [2, n]: the tokens after the last layer. */
  final: NdArray;
  pieces: Partial<Record<string, Piece>>;
}

/** The best tokens of a window of the lens's positions, [2, L, window]; -1 if not computed. */
export interface LensIds {
  ids: NdArray;
  token_from: number;
  token_to: number;
  pieces: Partial<Record<string, Piece>>;
}

/** The slice of a run's probed steps. */
export const LENS: Query = { view: "lens", part: "facts" };

/** The slice of the layers at which the tokens of a probed step are decided. */
export function lensLayers(probe: number): Query {
  return { view: "lens", part: "layers", probe };
}

/** The slice of the probabilities of a probed step and a pass. */
export function lensMap(probe: number, pass: Pass, of: string): Query {
  return { view: "lens", part: "map", probe, pass, of };
}

const MOST_BYTES = 1_500_000;

/** The slice of the best tokens around a place among `count` positions; of few, of all of them. */
export function lensIds(probe: number, place: number, layers: number, count: number): Query {
  const most = Math.max(Math.floor(MOST_BYTES / (8 * layers)), 1);
  const from = Math.floor(Math.max(place, 0) / most) * most;
  const window = { token_from: from, token_to: Math.min(from + most, count) };
  return { view: "lens", part: "ids", probe, ...window };
}

/** The best token of a pass after a layer; null if it was not computed, or is not in the slice. */
export function tokenAt(data: LensIds, pass: number, layer: number, place: number): number | null {
  if (place < data.token_from || place >= data.token_to) return null;
  const id = at(data.ids, pass, layer, place - data.token_from);
  return id < 0 ? null : id;
}

/** A token in quotation marks; its id if its text is unknown. */
export function tokenText(pieces: LensIds["pieces"], id: number): string {
  const piece = pieces[id];
  return piece === undefined ? `id ${id}` : quoted(piece);
}

/** A token that the run turned: what both passes predict, and the layer from which they differ. */
export interface Turn {
  /** Index among the lens's positions. */
  place: number;
  layer: number;
  run: string;
  exact: string;
}

/** The predictions of the run that differ from the exact ones. */
export function turnsOf({ turned, final, pieces }: LensLayers): Turn[] {
  return Array.from(turned.values).flatMap((layer, place) => {
    if (layer < 0) return [];
    const [run, exact] = [0, 1].map((pass) => tokenText(pieces, at(final, pass, place)));
    return [{ place, layer, run, exact }];
  });
}

/** The share of the predictions whose last token is the best one after each layer, to the end. */
export function settledShares({ stays }: LensLayers, pass: number, layers: number): number[] {
  const known = placesWithPrediction(stays);
  return Array.from({ length: layers }, (_, layer) => {
    const settled = known.filter((place) => at(stays, pass, place) <= layer);
    return known.length ? settled.length / known.length : NaN;
  });
}

/** The mean layer, from 1, from which the tokens of a pass stay; NaN without predictions. */
export function meanStay({ stays }: LensLayers, pass: number): number {
  const known = placesWithPrediction(stays).map((place) => at(stays, pass, place) + 1);
  return known.length ? known.reduce((sum, layer) => sum + layer, 0) / known.length : NaN;
}

/** The places that have a prediction in both passes. */
function placesWithPrediction(stays: NdArray): number[] {
  const count = stays.shape[1];
  const places = Array.from({ length: count }, (_, place) => place);
  return places.filter((place) => [0, 1].every((pass) => at(stays, pass, place) >= 0));
}
