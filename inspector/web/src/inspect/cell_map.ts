/** The cells of a heat map as they are in a slice: one by one, or several joined. */
import type { CellBlocks, CellCodes, HeatSpec } from "../figures/spec.ts";
import { at, type NdArray } from "./arrays.ts";
import { numberOf, type Slice } from "./slice.ts";

/** A window of an axis, and how many of its cells are joined in each cell of the slice. */
interface MapAxis {
  from: number;
  to: number;
  factor: number;
}

const REDUCED: Readonly<Record<string, string>> = {
  maximum: "largest",
  minimum: "first in the legend",
  mean: "mean",
  share: "share",
};

/** A slice with `cells`, read by the rows and columns of the whole map. */
export class CellMap {
  readonly rows: MapAxis;
  readonly columns: MapAxis;
  /** Changes with the slice. */
  readonly key: string;
  private readonly cells: NdArray;
  private readonly by: string;

  /** `coarse`: another slice of the same map, which is read outside of this one. */
  constructor(
    slice: Slice,
    private readonly coarse: CellMap | null = null,
  ) {
    const { rows, columns, by } = slice.facts as { rows: MapAxis; columns: MapAxis; by: string };
    this.rows = rows;
    this.columns = columns;
    this.by = by;
    this.cells = slice.arrays.cells;
    this.key = [numberOf(slice), coarse?.key].join();
  }

  private inside(row: number, column: number): boolean {
    const { rows, columns } = this;
    return row >= rows.from && row < rows.to && column >= columns.from && column < columns.to;
  }

  /** The code of a cell; of joined cells, theirs. NaN if the slice does not have it. */
  at(row: number, column: number): number {
    const { rows, columns, cells } = this;
    if (!this.inside(row, column)) return this.coarse ? this.coarse.at(row, column) : NaN;
    const y = Math.floor((row - rows.from) / rows.factor);
    return at(cells, y, Math.floor((column - columns.from) / columns.factor));
  }

  /** The cells that are joined with a cell: their first row, first column and the column after. */
  joinedWith(row: number, column: number): [row: number, from: number, to: number] {
    if (this.coarse && !this.inside(row, column)) return this.coarse.joinedWith(row, column);
    const first = ({ from, factor }: MapAxis, cell: number): number =>
      cell - ((cell - from) % factor);
    const from = first(this.columns, column);
    return [first(this.rows, row), from, Math.min(from + this.columns.factor, this.columns.to)];
  }

  /** Whether a cell stands for several. */
  joined(row: number, column: number): boolean {
    if (this.coarse && !this.inside(row, column)) return this.coarse.joined(row, column);
    return this.rows.factor > 1 || this.columns.factor > 1;
  }

  /** What a value means that stands for several cells, before it; empty if it does not. */
  words(row: number, column: number): string {
    if (this.coarse && !this.inside(row, column)) return this.coarse.words(row, column);
    const { rows, columns, by } = this;
    if (!this.joined(row, column)) return "";
    return `${REDUCED[by] ?? by} of ${rows.factor} × ${columns.factor} cells `;
  }

  /** The cells as those of a heat map whose columns begin at `first`. */
  drawn(palette: CellCodes["palette"], first = 0): Pick<HeatSpec, "cells" | "blocks"> {
    const { rows, columns } = this;
    const { values } = this.cells;
    const plain = values instanceof Uint8Array || values instanceof Uint16Array;
    const x = { ...columns, from: columns.from - first, to: columns.to - first };
    return {
      cells: () => ({ codes: plain ? values : Uint8Array.from(values), palette }),
      blocks: { x, y: rows },
    };
  }

  /** Its cells, if they are joined, and another map's are joined in the same way. */
  joinedAs(other: CellMap): CellBlocks | undefined {
    const [x, y] = [this.columns, this.rows];
    const alike =
      x.from === other.columns.from &&
      x.factor === other.columns.factor &&
      y.from === other.rows.from &&
      y.factor === other.rows.factor;
    const joined = x.factor > 1 || y.factor > 1;
    const to = { x: Math.min(x.to, other.columns.to), y: Math.min(y.to, other.rows.to) };
    return alike && joined ? { x: { ...x, to: to.x }, y: { ...y, to: to.y } } : undefined;
  }
}

/**
 * Blocks as large as the larger ones of two maps whose cells are joined in other ways, so that not
 * every cell is read of maps that are large; undefined if neither joins cells.
 */
export function largerBlocks(
  a: CellMap,
  b: CellMap,
  columns: number,
  rows: number,
): CellBlocks | undefined {
  const x = Math.max(a.columns.factor, b.columns.factor);
  const y = Math.max(a.rows.factor, b.rows.factor);
  if (x === 1 && y === 1) return undefined;
  return { x: { from: 0, to: columns, factor: x }, y: { from: 0, to: rows, factor: y } };
}
