/** What the reader has chosen to see of a heat map: a part of its cells, and a range of colours. */
import { cividis } from "../base/colours.ts";
import { ranged, rangeLegend } from "./range.ts";
import type { Cell } from "./reading.ts";
import type { Box } from "./scales.ts";
import type { CellAxis, HeatSpec, ValueRange } from "./spec.ts";
import {
  middleOf,
  movedBy,
  placeIn,
  pointAt,
  shownCells,
  wholeZoom,
  windowed,
  zoomedBy,
  zoomInto,
  zoomWith,
  zoomWords,
  type Point,
  type Zoom,
} from "./zoom.ts";

type Place = NonNullable<HeatSpec["at"]>;

/** An axis with nothing but its number of cells; functions of an axis may hold the data. */
function countOf({ count }: CellAxis): CellAxis {
  return { name: "", count };
}

/** The state of one heat map. Gestures keep fractions of cells; `cells` are whole ones. */
export class HeatState {
  private zoom: Zoom | null = null;
  private chosen: ValueRange | null = null;

  constructor(private spec: HeatSpec) {}

  /** Go on with another spec. What does not fit it any more is forgotten. */
  take(spec: HeatSpec): void {
    const before = this.spec;
    this.spec = spec;
    if (before.x.count !== spec.x.count || before.y.count !== spec.y.count) this.zoom = null;
    const [own, last] = [rangeLegend(spec)?.range, rangeLegend(before)?.range];
    if (JSON.stringify(own) !== JSON.stringify(last)) this.chosen = null;
  }

  /** Forget the data, but not what the reader has chosen to see. */
  forget(): void {
    const { x, y, legend } = this.spec;
    const empty = { title: "", key: "", value: () => null, words: () => "", colour: cividis };
    this.spec = { ...empty, x: countOf(x), y: countOf(y), legend };
  }

  /** The cells that are shown of a map with so many columns and rows; null if all are. */
  cellsOf(columns: number, rows: number): Zoom | null {
    const { x, y } = this.spec;
    return x.count === columns && y.count === rows ? this.cells : null;
  }

  /** The cells that are shown; null if all are. */
  get cells(): Zoom | null {
    return shownCells(this.spec, this.zoom);
  }

  /** The range that the reader has set; null for that of the view. */
  get range(): ValueRange | null {
    return this.chosen;
  }

  set range(range: ValueRange | null) {
    const own = rangeLegend(this.spec)?.range;
    this.chosen = JSON.stringify(range) === JSON.stringify(own) ? null : range;
  }

  /** The heat map as it is shown. */
  get seen(): HeatSpec {
    const { cells } = this;
    const spec = ranged(this.spec, this.chosen);
    return cells ? windowed(spec, cells) : spec;
  }

  /** Where a cell of the whole map is shown. */
  shownAt(at: Place | null): Place | null {
    const { cells } = this;
    return at && cells ? placeIn(cells, at) : at;
  }

  /** The cell of the whole map that is shown as a cell of `seen`. */
  wholeCell({ x, y }: Cell): Cell {
    const { cells } = this;
    return cells ? { x: x + cells.x.from, y: y + cells.y.from } : { x, y };
  }

  private get part(): Zoom {
    return this.zoom ?? wholeZoom(this.spec);
  }

  /** The middle of a cell if it is shown, else the middle of what is shown. */
  around(cell: Cell | null): Point {
    const at = cell && this.shownAt(cell);
    if (!cell || at?.x === null || at?.y === null) return middleOf(this.part);
    return { x: cell.x + 0.5, y: cell.y + 0.5 };
  }

  /** Show `factor` times as many cells around a point of the whole map. */
  zoomBy(box: Box, factor: number, around: Point): void {
    this.zoom = zoomedBy(this.spec, box, this.part, factor, around);
  }

  /** Show `factor` times as many cells around a place in the box. */
  zoomAt(box: Box, factor: number, px: number, py: number): void {
    this.zoomBy(box, factor, pointAt(this.part, box, px, py));
  }

  /** Move the cells by CSS pixels. */
  moveBy(box: Box, dx: number, dy: number): void {
    const { x, y } = this.part;
    const across = ((x.to - x.from) * dx) / (box.right - box.left);
    const down = ((y.to - y.from) * dy) / (box.bottom - box.top);
    this.zoom = movedBy(this.spec, this.part, { x: -across, y: -down });
  }

  /** Show the cells in a rectangle of the box; false if it is too small to mean anything. */
  zoomInto(box: Box, area: Box): boolean {
    const into = zoomInto(this.spec, box, this.cells ?? this.part, area);
    if (into) this.zoom = into;
    return into !== null;
  }

  /** Move the shown part so that it has a cell. */
  reveal(cell: Cell): void {
    if (this.zoom) this.zoom = zoomWith(this.spec, this.zoom, cell);
  }

  /** Show all cells. */
  reset(): void {
    this.zoom = null;
  }

  /** What is shown, in words; empty if all cells are. */
  words(): string {
    const { cells } = this;
    return cells ? zoomWords(this.spec, cells) : "";
  }
}
