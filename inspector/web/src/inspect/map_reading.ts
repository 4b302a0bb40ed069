/** Reading the cells of a heat map, at the resolution of the screen. */
import type { Figure } from "../figures/figure.ts";
import { CellMap } from "./cell_map.ts";
import {
  mapParameters,
  partQuery,
  wholeQuery,
  type AxisSight,
  type MapQuery,
} from "./map_query.ts";
import type { Panel } from "./panel.ts";
import type { Query, Slice } from "./slice.ts";
import { isMissing } from "./view.ts";

/** The map of a large array that a figure shows. */
export interface MapWish {
  figure: string;
  /** The slice, without window and size. */
  query: Query;
  /** The names of the axes in queries, and their cells. Columns begin at `first`. */
  rows: readonly [name: string, count: number];
  columns: readonly [name: string, count: number];
  first?: number;
  /** Bytes of a cell; 1 by default. */
  bytes?: number;
  /** The figure's height in CSS pixels. */
  height?: number;
  /** Slices that the reader may want next, with the same window and size. */
  ahead?: readonly Query[];
}

const MAPS = new WeakMap<Slice, CellMap>();

function cellMapOf(slice: Slice): CellMap {
  const known = MAPS.get(slice) ?? new CellMap(slice);
  MAPS.set(slice, known);
  return known;
}

/**
 * The cells that a figure shows; null if they are on their way, or missing, which the figure says.
 * A large map has as many cells as the screen can show, and once the reader zooms, those in sight.
 */
export function readMap(panel: Panel, figure: Figure, wish: MapWish): CellMap | null {
  const { rows, columns, first, bytes = 1 } = wish;
  const { cells, wide, high } = figure.sight(columns[1], rows[1], wish.height);
  const y: AxisSight = { count: rows[1], shown: cells?.y ?? null, pixels: high };
  const x: AxisSight = { count: columns[1], shown: cells?.x ?? null, pixels: wide };
  const names = { rows: rows[0], columns: columns[0] };
  const query = (of: Query, part: MapQuery): Query => ({
    ...of,
    ...mapParameters(part, names, first),
  });
  const [whole, part] = [wholeQuery(y, x, bytes), partQuery(y, x, bytes)];
  const coarse = panel.slice(query(wish.query, whole));
  const fine = part ? panel.slice(query(wish.query, part)) : null;
  for (const next of wish.ahead ?? []) panel.ahead(query(next, whole));
  if (!coarse || isMissing(coarse)) {
    figure.wait(coarse ? coarse.missing : null);
    return null;
  }
  const all = cellMapOf(coarse);
  return fine && !isMissing(fine) ? new CellMap(fine, all) : all;
}
