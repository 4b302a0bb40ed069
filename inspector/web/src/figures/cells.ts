/** The pixels of heat maps. */
import type { Rgb } from "../base/colours.ts";
import type { CellCodes, CellPoint, HeatSpec, Joined } from "./spec.ts";

/** What a pixel shows that holds several cells; the first is that of the smallest value. */
export type Several = "largest" | "mean" | "first";

/** What the pixels of a heat map show that hold several cells. */
export function severalOf({ several, legend }: Pick<HeatSpec, "several" | "legend">): Several {
  return several ?? (legend && legend.kind !== "scale" ? "first" : "largest");
}

/** Cells in row order: numbers, or codes. A number that is NaN, and the code -1, have no data. */
export interface Grid {
  wide: number;
  high: number;
  values: CellCodes["codes"] | Int32Array | Float64Array;
  /** What the codes mean; null if the values are numbers. */
  codes: Codes | null;
}

/** What codes mean. */
interface Codes {
  palette: CellCodes["palette"];
  numbers: CellCodes["numbers"];
  /** For each code, whether it has no data. */
  blank: Uint8Array;
}

const OPAQUE = 0xff000000;
const MOST_COLOURS = 1 << 16;

/** How many blocks an axis has. */
export function blockCount({ from, to, factor }: Joined): number {
  return Math.ceil(Math.max(to - from, 0) / factor);
}

/** Whether a heat map does not have all cells one by one. */
export function isJoined({ blocks }: Pick<HeatSpec, "blocks">): boolean {
  return blocks !== undefined && (blocks.x.factor > 1 || blocks.y.factor > 1);
}

/** Whether all cells of a heat map are known, one by one. */
export function isWhole(spec: Pick<HeatSpec, "x" | "y" | "blocks">): boolean {
  const { x, y, blocks } = spec;
  if (!blocks) return true;
  const all = (side: Joined, count: number): boolean => side.from <= 0 && side.to >= count;
  return !isJoined(spec) && all(blocks.x, x.count) && all(blocks.y, y.count);
}

/** The cells of a heat map, or its blocks of joined cells. */
export function gridOf(spec: Pick<HeatSpec, "x" | "y" | "value" | "cells" | "blocks">): Grid {
  const { blocks } = spec;
  const wide = blocks ? blockCount(blocks.x) : spec.x.count;
  const high = blocks ? blockCount(blocks.y) : spec.y.count;
  if (spec.cells) {
    const { codes, palette, numbers } = spec.cells();
    const blank = Uint8Array.from({ length: codeCount(codes) }, (_, code) =>
      (palette as readonly (Rgb | null | undefined)[])[code] ? 0 : 1,
    );
    return { wide, high, values: codes, codes: { palette, numbers, blank } };
  }
  const values = new Float64Array(wide * high);
  for (let y = 0, i = 0; y < high; y++) {
    for (let x = 0; x < wide; x++) values[i++] = valueOf(spec, x, y) ?? NaN;
  }
  return { wide, high, values, codes: null };
}

/** The value of a cell, or of the first cell of a block. */
function valueOf(
  { value, blocks }: Pick<HeatSpec, "value" | "blocks">,
  x: number,
  y: number,
): number | null {
  if (!blocks) return value(x, y);
  return value(blocks.x.from + x * blocks.x.factor, blocks.y.from + y * blocks.y.factor);
}

/** How many codes there can be. */
function codeCount(codes: CellCodes["codes"]): number {
  return 1 << (8 * codes.BYTES_PER_ELEMENT);
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
  const { codes } = grid;
  let values: Grid["values"];
  if (several === "mean") values = codes ? meanCodes(grid, codes, w, h) : meanValues(grid, w, h);
  else if (codes) values = extremeCodes(grid, codes, [w, h], several === "first");
  else values = extremeValues(grid, w, h, several === "first");
  return { wide: w, high: h, values, codes };
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
  return { wide: w, high: h, values, codes: null };
}

/** The largest code of each pixel, or the smallest. */
function extremeCodes(
  { wide, high, values }: Grid,
  { blank }: Codes,
  [w, h]: readonly [number, number],
  smallest: boolean,
): Int32Array {
  const [columns, rows] = [bounds(wide, w), bounds(high, h)];
  const last = blank.length - 1;
  const rank = Int32Array.from(blank, (none, code) => (none ? -1 : smallest ? last - code : code));
  const out = new Int32Array(w * h).fill(-1);
  for (let row = 0; row < h; row++) {
    const best = out.subarray(row * w, (row + 1) * w);
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
  }
  return smallest ? out.map((best) => (best < 0 ? best : last - best)) : out;
}

/** The code next to the mean of the numbers of each pixel. */
function meanCodes({ wide, high, values }: Grid, codes: Codes, w: number, h: number): Int32Array {
  const [columns, rows] = [bounds(wide, w), bounds(high, h)];
  const numbers = codes.numbers ?? Uint16Array.from(codes.palette, (_, code) => code);
  const weight = Float64Array.from(codes.blank, (none, code) => (none ? 0 : numbers[code]));
  const one = Uint8Array.from(codes.blank, (none) => (none ? 0 : 1));
  const out = new Int32Array(w * h).fill(-1);
  const sums = new Float64Array(w);
  const counts = new Uint32Array(w);
  for (let row = 0; row < h; row++) {
    sums.fill(0);
    counts.fill(0);
    for (let y = rows[row]; y < rows[row + 1]; y++) {
      const from = y * wide;
      for (let column = 0; column < w; column++) {
        const end = from + columns[column + 1];
        let [sum, count] = [sums[column], counts[column]];
        for (let i = from + columns[column]; i < end; i++) {
          sum += weight[values[i]];
          count += one[values[i]];
        }
        sums[column] = sum;
        counts[column] = count;
      }
    }
    for (let column = 0; column < w; column++) {
      const count = counts[column];
      if (count) out[row * w + column] = nearestCode(numbers, sums[column] / count);
    }
  }
  return out;
}

/** The largest value of each pixel, or the smallest. */
function extremeValues(grid: Grid, w: number, h: number, smallest: boolean): Float64Array {
  const { wide, high, values } = grid;
  const [columns, rows] = [bounds(wide, w), bounds(high, h)];
  const sign = smallest ? -1 : 1;
  const out = new Float64Array(w * h).fill(NaN);
  for (let place = 0; place < out.length; place++) {
    const [column, row] = [place % w, Math.floor(place / w)];
    for (let y = rows[row]; y < rows[row + 1]; y++) {
      for (let x = columns[column]; x < columns[column + 1]; x++) {
        const found = values[y * wide + x];
        if (!Number.isNaN(found) && !(sign * found <= sign * out[place])) out[place] = found;
      }
    }
  }
  return out;
}

function meanValues({ wide, high, values }: Grid, w: number, h: number): Float64Array {
  const [columns, rows] = [bounds(wide, w), bounds(high, h)];
  const out = new Float64Array(w * h).fill(NaN);
  for (let place = 0; place < out.length; place++) {
    const [column, row] = [place % w, Math.floor(place / w)];
    let [sum, count] = [0, 0];
    for (let y = rows[row]; y < rows[row + 1]; y++) {
      for (let x = columns[column]; x < columns[column + 1]; x++) {
        const found = values[y * wide + x];
        if (Number.isNaN(found)) continue;
        sum += found;
        count++;
      }
    }
    if (count) out[place] = sum / count;
  }
  return out;
}

/** The code whose number is next to a number. */
function nearestCode(numbers: ArrayLike<number>, number: number): number {
  let [low, high] = [0, numbers.length - 1];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (numbers[middle] <= number) low = middle;
    else high = middle;
  }
  return number - numbers[low] <= numbers[high] - number ? low : high;
}

/** A colour as the four bytes of a pixel: little-endian, opaque. */
function pixel([r, g, b]: Rgb): number {
  return (OPAQUE | (b << 16) | (g << 8) | r) >>> 0;
}

/** The pixels of a grid, transparent where there is no data. */
export function pixels(grid: Grid, spec: Pick<HeatSpec, "colour">): Uint32Array {
  const { values, codes } = grid;
  const out = new Uint32Array(values.length);
  if (codes) {
    const table = new Uint32Array(codes.blank.length);
    codes.palette.forEach((colour, code) => {
      if (colour) table[code] = pixel(colour);
    });
    for (let i = 0; i < out.length; i++) {
      const code = values[i];
      if (code >= 0) out[i] = table[code];
    }
    return out;
  }
  const colourOf = remembered((value) => pixel(spec.colour(value)));
  for (let i = 0; i < out.length; i++) {
    const value = values[i];
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
