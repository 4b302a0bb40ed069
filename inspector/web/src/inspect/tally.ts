/** Counts of rows by layer and step, of which some are above a threshold. */
import { at, type NdArray } from "./arrays.ts";
import { DRIFT, NO_DATA } from "./codes.ts";

/** Evaluated rows, and those of them whose drift is above a threshold. */
export interface Tally {
  seen: number;
  above: number;
}

/** The share of the evaluated rows that are above the threshold; null if none was evaluated. */
export function shareAbove({ seen, above }: Tally): number | null {
  return seen ? above / seen : null;
}

/** Shares of 1 in percent; null stays null. */
export function inPercent(shares: readonly (number | null)[]): (number | null)[] {
  return shares.map((share) => (share === null ? null : 100 * share));
}

/** "recorded " for a run of which layers, steps or positions were not recorded, else "". */
export function recordedOf({ narrowed }: { narrowed: boolean }): string {
  return narrowed ? "recorded " : "";
}

/** The highest drift code that is not above a drift. */
export function codeUpTo(limit: number): number {
  let code = 0;
  while (code < NO_DATA - 1 && DRIFT[code + 1] <= limit) code++;
  return code;
}

/** How many rows of each layer and step were evaluated, and are above a threshold. */
export class CountTable {
  readonly steps: number;
  readonly layers: number;
  private ofLayers?: Tally[];
  private ofSteps?: Tally[];

  /** Both arrays are [steps, layers]. */
  constructor(
    private readonly seen: NdArray,
    private readonly above: NdArray,
  ) {
    [this.steps, this.layers] = seen.shape;
  }

  /** The rows of a layer in a step. */
  at(step: number, layer: number): Tally {
    return { seen: at(this.seen, step, layer), above: at(this.above, step, layer) };
  }

  /** The rows of each layer in all steps. */
  get byLayer(): readonly Tally[] {
    const steps = Array.from({ length: this.steps }, (_, step) => step);
    this.ofLayers ??= Array.from({ length: this.layers }, (_, layer) =>
      sum(steps.map((step) => this.at(step, layer))),
    );
    return this.ofLayers;
  }

  /** The rows of all layers in each step. */
  get byStep(): readonly Tally[] {
    const layers = Array.from({ length: this.layers }, (_, layer) => layer);
    this.ofSteps ??= Array.from({ length: this.steps }, (_, step) =>
      sum(layers.map((layer) => this.at(step, layer))),
    );
    return this.ofSteps;
  }

  /** The rows of all layers and steps. */
  ofAll(): Tally {
    return sum(this.byLayer);
  }

  /** The first layer with the largest share above the threshold; null if no row is above it. */
  mostDrifted(): { layer: number; share: number } | null {
    let most: { layer: number; share: number } | null = null;
    for (const [layer, tally] of this.byLayer.entries()) {
      const share = shareAbove(tally) ?? 0;
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

/** The positions with the highest drift codes, highest first, at most `most` of them. */
export function highest(
  code: (position: number) => number,
  [from, to]: readonly [number, number],
  most: number,
): { code: number; position: number }[] {
  const found: { code: number; position: number }[] = [];
  for (let position = from; position < to; position++) {
    const one = code(position);
    if (one < NO_DATA) found.push({ code: one, position });
  }
  return found.sort((a, b) => b.code - a.code || a.position - b.position).slice(0, most);
}
