/** The pixels of heat maps. */
import type { Rgb } from "../base/colours.ts";
import type { CellCodes, CellPoint, HeatSpec } from "./spec.ts";

/** What a pixel shows that holds several cells. */
export type Several = "largest" | "mean";

/** Cells in row order. Of bytes, those flagged in `blank` have no data; of numbers, NaN. */
export interface Grid {
  wide: number;
  high: number;
  values: Uint8Array | Float64Array;
  blank: Uint8Array | null;
}

const OPAQUE = 0xff000000;
const MOST_COLOURS = 1 << 16;

/** The cells of a heat map. */
export function gridOf(spec: Pick<HeatSpec, "x" | "y" | "value" | "cells">): Grid {
  const [wide, high] = [spec.x.count, spec.y.count];
  if (spec.cells) return { wide, high, values: spec.cells.codes, blank: blankCodes(spec.cells) };
  const values = new Float64Array(wide * high);
  for (let y = 0, i = 0; y < high; y++) {
    for (let x = 0; x < wide; x++) values[i++] = spec.value(x, y) ?? NaN;
  }
  return { wide, high, values, blank: null };
}

function blankCodes({ palette }: CellCodes): Uint8Array {
  const given: readonly (Rgb | null | undefined)[] = palette;
  return Uint8Array.from({ length: 256 }, (_, code) => (given[code] ? 0 : 1));
}

/** The first of `count` cells in each of so many pixels, and `count` at the end. */
function bounds(count: number, pixels: number): Int32Array {
  return Int32Array.from({ length: pixels + 1 }, (_, i) => Math.ceil((i * count) / pixels));
}

/**
 * The grid with at most `wide` by `high` cells. Each takes the largest value, or the mean, of the
 * cells that lie in it; it has no data only if none of them has.
 */
export function reduced(grid: Grid, wide: number, high: number, several: Several): Grid {
  const [w, h] = [Math.min(Math.max(wide, 1), grid.wide), Math.min(Math.max(high, 1), grid.high)];
  if (w === grid.wide && h === grid.high) return grid;
  const fill = several === "mean" ? means : grid.blank ? largestCodes : largestValues;
  return { wide: w, high: h, values: fill(grid, w, h), blank: null };
}

/**
 * The same as `reduced` makes of the only cells of a heat map that have data, where a pixel takes
 * the largest value. Its time does not grow with the size of the map.
 */
export function scattered(
  points: readonly CellPoint[],
  spec: Pick<HeatSpec, "x" | "y">,
  wide: number,
  high: number,
): Grid {
  const { x: columns, y: rows } = spec;
  const w = Math.min(Math.max(wide, 1), columns.count);
  const h = Math.min(Math.max(high, 1), rows.count);
  const values = new Float64Array(w * h).fill(NaN);
  for (const [x, y, value] of points) {
    const column = Math.floor((x * w) / columns.count);
    const place = Math.floor((y * h) / rows.count) * w + column;
    if (!(value <= values[place])) values[place] = value;
  }
  return { wide: w, high: h, values, blank: null };
}

function largestCodes({ wide, high, values, blank }: Grid, w: number, h: number): Float64Array {
  const [columns, rows] = [bounds(wide, w), bounds(high, h)];
  const rank = Int16Array.from({ length: 256 }, (_, code) => (blank?.[code] ? -1 : code));
  const out = new Float64Array(w * h);
  const best = new Int16Array(w);
  for (let row = 0; row < h; row++) {
    best.fill(-1);
    for (let y = rows[row]; y < rows[row + 1]; y++) {
      const from = y * wide;
      for (let column = 0; column < w; column++) {
        const end = from + columns[column + 1];
        let top = best[column];
        for (let i = from + columns[column]; i < end; i++) {
          const code = rank[values[i]];
          if (code > top) top = code;
        }
        best[column] = top;
      }
    }
    for (let column = 0; column < w; column++) {
      out[row * w + column] = best[column] < 0 ? NaN : best[column];
    }
  }
  return out;
}

function largestValues({ wide, high, values }: Grid, w: number, h: number): Float64Array {
  const [columns, rows] = [bounds(wide, w), bounds(high, h)];
  const out = new Float64Array(w * h).fill(NaN);
  for (let place = 0; place < out.length; place++) {
    const [column, row] = [place % w, Math.floor(place / w)];
    for (let y = rows[row]; y < rows[row + 1]; y++) {
      for (let x = columns[column]; x < columns[column + 1]; x++) {
        const found = values[y * wide + x];
        if (!Number.isNaN(found) && !(found <= out[place])) out[place] = found;
      }
    }
  }
  return out;
}

function means({ wide, high, values, blank }: Grid, w: number, h: number): Float64Array {
  const [columns, rows] = [bounds(wide, w), bounds(high, h)];
  const out = new Float64Array(w * h).fill(NaN);
  for (let place = 0; place < out.length; place++) {
    const [column, row] = [place % w, Math.floor(place / w)];
    let [sum, count] = [0, 0];
    for (let y = rows[row]; y < rows[row + 1]; y++) {
      for (let x = columns[column]; x < columns[column + 1]; x++) {
        const found = values[y * wide + x];
        if (blank ? blank[found] : Number.isNaN(found)) continue;
        sum += found;
        count++;
      }
    }
    if (count) out[place] = sum / count;
  }
  return out;
}

/** A colour as the four bytes of a pixel: little-endian, opaque. */
function pixel([r, g, b]: Rgb): number {
  return (OPAQUE | (b << 16) | (g << 8) | r) >>> 0;
}

/** The pixels of a grid, transparent where there is no data. A mean code is rounded. */
export function pixels(grid: Grid, spec: Pick<HeatSpec, "colour" | "cells">): Uint32Array {
  const out = new Uint32Array(grid.values.length);
  if (spec.cells) {
    const table = new Uint32Array(256);
    spec.cells.palette.forEach((colour, code) => {
      if (colour) table[code] = pixel(colour);
    });
    const { values } = grid;
    for (let i = 0; i < out.length; i++) {
      const code = values[i];
      out[i] = code >= 0 ? table[(code + 0.5) | 0] : 0;
    }
    return out;
  }
  const colourOf = remembered((value) => pixel(spec.colour(value)));
  for (let i = 0; i < out.length; i++) {
    const value = grid.values[i];
    if (!Number.isNaN(value)) out[i] = colourOf(value);
  }
  return out;
}

/** The function, computed once for each of the first values. */
function remembered(read: (value: number) => number): (value: number) => number {
  const known = new Map<number, number>();
  return (value) => {
    const found = known.get(value);
    if (found !== undefined) return found;
    const made = read(value);
    if (known.size < MOST_COLOURS) known.set(value, made);
    return made;
  };
}
