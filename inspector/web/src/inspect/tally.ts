/** Counts of drift codes and of recomputed rows. */
import { Latest } from "../base/latest.ts";
import type { NdArray } from "./arrays.ts";
import { DRIFT, NO_DATA } from "./codes.ts";

const CODES = 256;

/** Evaluated rows, and those of them whose drift is above a threshold. */
export interface Tally {
  seen: number;
  above: number;
}

/** The share of the evaluated rows that are above the threshold; null if none was evaluated. */
export function shareAbove({ seen, above }: Tally): number | null {
  return seen ? above / seen : null;
}

/** The highest drift code that is not above a drift. */
export function codeUpTo(limit: number): number {
  let code = 0;
  while (code < NO_DATA - 1 && DRIFT[code + 1] <= limit) code++;
  return code;
}

/** How many rows of each layer and step have a drift code above any other. */
export class CountTable {
  readonly steps: number;
  readonly layers: number;
  /** For each step, layer and code, the number of evaluated rows with at most this code. */
  private readonly upTo: Uint32Array;

  /** Counts the rows from position `from` on in `drift` [steps, layers, quantities, positions]. */
  constructor(drift: NdArray, quantity: number, from: number) {
    const [steps, layers, quantities, positions] = drift.shape;
    this.steps = steps;
    this.layers = layers;
    this.upTo = new Uint32Array(steps * layers * CODES);
    for (let cell = 0; cell < steps * layers; cell++) {
      const row = (cell * quantities + quantity) * positions;
      const counts = this.upTo.subarray(cell * CODES, (cell + 1) * CODES);
      for (let x = from; x < positions; x++) counts[drift.values[row + x]]++;
      for (let code = 1; code < NO_DATA; code++) counts[code] += counts[code - 1];
    }
  }

  /** The rows of a layer in a step. */
  at(step: number, layer: number, code: number): Tally {
    const cell = (step * this.layers + layer) * CODES;
    const seen = this.upTo[cell + NO_DATA - 1];
    return { seen, above: seen - this.upTo[cell + code] };
  }

  /** The rows of a layer in all steps. */
  ofLayer(layer: number, code: number): Tally {
    return sum(Array.from({ length: this.steps }, (_, step) => this.at(step, layer, code)));
  }

  /** The rows of all layers in a step. */
  ofStep(step: number, code: number): Tally {
    return sum(Array.from({ length: this.layers }, (_, layer) => this.at(step, layer, code)));
  }

  /** The rows of all layers and steps. */
  ofAll(code: number): Tally {
    return sum(Array.from({ length: this.layers }, (_, layer) => this.ofLayer(layer, code)));
  }

  /** The first layer with the largest share above the code; null if no row is above it. */
  mostDrifted(code: number): { layer: number; share: number } | null {
    let most: { layer: number; share: number } | null = null;
    for (let layer = 0; layer < this.layers; layer++) {
      const share = shareAbove(this.ofLayer(layer, code)) ?? 0;
      if (share > (most?.share ?? 0)) most = { layer, share };
    }
    return most;
  }
}

function sum(parts: readonly Tally[]): Tally {
  const out = { seen: 0, above: 0 };
  for (const { seen, above } of parts) {
    out.seen += seen;
    out.above += above;
  }
  return out;
}

const TABLES = new Latest<NdArray, CountTable>();

/** The count table of a drift array; the one made last is kept. */
export function countTable(drift: NdArray, quantity: number, from: number): CountTable {
  const key = `${quantity},${from}`;
  return TABLES.of(drift, key, () => new CountTable(drift, quantity, from));
}

/**
 * The positions from `from` on with the highest drift codes of a layer in a step, highest first,
 * at most `most` of them.
 */
export function highest(
  drift: NdArray,
  [step, layer, quantity]: readonly [number, number, number],
  from: number,
  most: number,
): { code: number; position: number }[] {
  const { values, shape } = drift;
  const row = ((step * shape[1] + layer) * shape[2] + quantity) * shape[3];
  const found: { code: number; position: number }[] = [];
  for (let position = from; position < shape[3]; position++) {
    const code = values[row + position];
    if (code !== NO_DATA) found.push({ code, position });
  }
  return found.sort((a, b) => b.code - a.code || a.position - b.position).slice(0, most);
}

/**
 * The recomputed rows among the positions `from` to `to` (excluded) of one cell of a plan
 * [steps, layers, sites, positions / 8]; `cell` is step, layer and site.
 */
export function rowsDone(
  plan: NdArray,
  from: number,
  to: number,
  cell: readonly [number, number, number],
): number {
  const [, layers, sites, bytes] = plan.shape;
  const base = ((cell[0] * layers + cell[1]) * sites + cell[2]) * bytes;
  let count = 0;
  for (let x = from; x < to; x++) count += (plan.values[base + (x >> 3)] >> (7 - (x & 7))) & 1;
  return count;
}
