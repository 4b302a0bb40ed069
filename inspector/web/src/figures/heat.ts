/** Heat maps: cells on a canvas, everything else in SVG. */
import { scaleLinear } from "d3-scale";
import { inkOn } from "../base/colours.ts";
import { make } from "../base/dom.ts";
import { drawAxis, drawAxisNames } from "./axis.ts";
import {
  blockCount,
  gridOf,
  isJoined,
  pixels,
  reduced,
  scattered,
  severalOf,
  type Grid,
} from "./cells.ts";
import type { Inks } from "./inks.ts";
import { cellPlaces, cellTicks, type Box, type CellPlaces } from "./scales.ts";
import type { HeatSpec } from "./spec.ts";
import { add, HATCH, hatchFill, layer, rounded, type Sheet } from "./svg.ts";

type Edge = "over" | "under";

/** A run of cells with a line along an edge. */
interface EdgeRun {
  edge: Edge;
  y: number;
  from: number;
  to: number;
  colour: string;
}

const LOWEST_GLYPH = 11; // CSS pixels that a glyph needs
const NARROWEST_GLYPH = 9;
const LOWEST_EDGE = 3;

/** Whether cells are joined, or a pixel holds several at a size in device pixels. */
export function crowded(spec: HeatSpec, wide: number, high: number): boolean {
  return isJoined(spec) || spec.x.count > wide || spec.y.count > high;
}

/** The cells of one heat map at one size, kept until either changes. */
export class HeatRaster {
  private key: string | null = null;
  private grid: Grid | null = null;
  private size = "";
  private readonly image = make("canvas");
  private edges: EdgeRun[] | null = null;

  /** The cells as an image of at most so many pixels. */
  of(spec: HeatSpec, wide: number, high: number): HTMLCanvasElement {
    const several = severalOf(spec);
    const size = [wide, high, several].join();
    if (this.key === spec.key && this.size === size) return this.image;
    const shown = this.shown(spec, wide, high);
    this.image.width = Math.max(shown.wide, 1);
    this.image.height = Math.max(shown.high, 1);
    if (shown.values.length) {
      const data = new Uint8ClampedArray(pixels(shown, spec).buffer as ArrayBuffer);
      const image = new ImageData(data, shown.wide, shown.high);
      this.image.getContext("2d")?.putImageData(image, 0, 0);
    }
    this.size = size;
    return this.image;
  }

  /** The cells of at most so many pixels. */
  private shown(spec: HeatSpec, wide: number, high: number): Grid {
    if (!spec.points) return reduced(this.gridFor(spec), wide, high, severalOf(spec));
    this.key = spec.key;
    this.edges = null;
    return scattered(spec.points, spec, wide, high);
  }

  private gridFor(spec: HeatSpec): Grid {
    if (this.grid && this.key === spec.key) return this.grid;
    this.key = spec.key;
    this.size = "";
    this.edges = null;
    this.grid = gridOf(spec);
    return this.grid;
  }

  /** The lines along edges of cells. */
  edgesOf(spec: HeatSpec): EdgeRun[] {
    if (!spec.points) this.gridFor(spec);
    this.edges ??= edgeRuns(spec);
    return this.edges;
  }
}

/** Consecutive cells of the same name, or each cell for itself; those without a name are left out. */
export function runs(
  count: number,
  name: (x: number) => string,
  merge: boolean,
): { from: number; to: number; name: string }[] {
  const out: { from: number; to: number; name: string }[] = [];
  for (let from = 0; from < count;) {
    const text = name(from);
    let to = from + 1;
    while (merge && to < count && name(to) === text) to++;
    if (text) out.push({ from, to, name: text });
    from = to;
  }
  return out;
}

function edgeRuns(spec: HeatSpec): EdgeRun[] {
  const out: EdgeRun[] = [];
  for (const edge of ["over", "under"] as const) {
    const has = spec[edge];
    for (let y = 0; has && y < spec.y.count; y++) {
      const ink = (x: number): string => {
        const value = spec.value(x, y);
        return value !== null && has(x, y) ? inkOn(spec.colour(value)) : "";
      };
      for (const { from, to, name } of runs(spec.x.count, ink, true)) {
        out.push({ edge, y, from, to, colour: name });
      }
    }
  }
  return out;
}

/** Fill the box as cells without data look: hatched, or in the spec's own colour. */
export function paintGround(
  pen: CanvasRenderingContext2D,
  spec: HeatSpec,
  box: Box,
  inks: Inks,
): void {
  pen.fillStyle = spec.ground ?? hatch(pen, inks) ?? inks.paper;
  pen.fillRect(box.left, box.top, box.right - box.left, box.bottom - box.top);
}

function hatch(pen: CanvasRenderingContext2D, inks: Inks): CanvasPattern | null {
  const tile = make("canvas");
  tile.width = tile.height = HATCH.size;
  const brush = tile.getContext("2d");
  if (!brush) return null;
  brush.fillStyle = inks.paper;
  brush.fillRect(0, 0, HATCH.size, HATCH.size);
  brush.strokeStyle = inks.hatch;
  brush.stroke(new Path2D(HATCH.line));
  return pen.createPattern(tile, "repeat");
}

/** Draw the same ground into SVG; `id` names its pattern in the document. */
export function drawGround(sheet: Sheet, spec: HeatSpec, box: Box, id: string): void {
  const { hatch: ink, paper } = sheet.inks;
  const fill = spec.ground ? sheet.shade(spec.ground) : hatchFill(sheet, id, { ink, paper });
  const size = { width: box.right - box.left, height: box.bottom - box.top };
  add(sheet.node, "rect", { x: box.left, y: box.top, ...size, fill });
}

/** The place of the cells that are known; the last blocks may reach beyond the box. */
function blockBox(spec: HeatSpec, box: Box): Box {
  const { blocks } = spec;
  if (!blocks) return box;
  const place = cellPlaces(spec, box);
  const { x, y } = blocks;
  return {
    left: place.left(x.from),
    right: place.left(x.from + blockCount(x) * x.factor),
    top: place.top(y.from),
    bottom: place.top(y.from + blockCount(y) * y.factor),
  };
}

/** Paint the cells and the lines along their edges; `dense`: device pixels of a CSS pixel. */
export function paintCells(
  pen: CanvasRenderingContext2D,
  spec: HeatSpec,
  box: Box,
  raster: HeatRaster,
  dense: number,
): void {
  const [wide, high] = [box.right - box.left, box.bottom - box.top];
  const area = blockBox(spec, box);
  const [across, down] = [area.right - area.left, area.bottom - area.top];
  const image = raster.of(spec, Math.round(across * dense), Math.round(down * dense));
  pen.imageSmoothingEnabled = false;
  pen.save();
  pen.beginPath();
  pen.rect(box.left, box.top, wide, high);
  pen.clip();
  pen.drawImage(image, area.left, area.top, across, down);
  pen.restore();
  const place = cellPlaces(spec, box);
  if (place.high < LOWEST_EDGE) return;
  const thick = Math.min(Math.max(place.high * 0.22, 1), 3);
  for (const { edge, y, from, to, colour } of raster.edgesOf(spec)) {
    const top = edge === "over" ? place.top(y) + thick : place.top(y + 1) - thick;
    pen.fillStyle = colour;
    pen.fillRect(place.left(from), top, place.left(to) - place.left(from), thick);
  }
}

/** Draw what is in front of the cells, without the cursor: glyphs, lines, dots and axes. */
export function drawHeatFront(sheet: Sheet, spec: HeatSpec, box: Box): void {
  const place = cellPlaces(spec, box);
  drawGlyphs(sheet, spec, place);
  drawMarks(sheet, spec, box, place);
  drawDots(sheet, spec, place);
  const x = scaleLinear([0, Math.max(spec.x.count, 1)], [box.left, box.right]);
  const y = scaleLinear([0, Math.max(spec.y.count, 1)], [box.top, box.bottom]);
  const [wide, high] = [box.right - box.left, box.bottom - box.top];
  drawAxis(sheet, { side: "x", scale: x, ticks: cellTicks(spec.x, wide, "x") }, box);
  drawAxis(sheet, { side: "y", scale: y, ticks: cellTicks(spec.y, high, "y") }, box);
  drawAxisNames(sheet, spec.x.name, spec.y.name, Boolean(spec.y.up), box);
}

function drawGlyphs(sheet: Sheet, spec: HeatSpec, place: CellPlaces): void {
  const { glyph } = spec;
  if (!glyph || place.high < LOWEST_GLYPH) return;
  const look = { "font-size": 10, "font-weight": "bold", "text-anchor": "middle" };
  const own = layer(sheet, look);
  const narrow = place.wide < NARROWEST_GLYPH;
  for (let y = 0; y < spec.y.count; y++) {
    const name = (x: number): string => {
      const value = spec.value(x, y);
      return value === null ? "" : glyph(value);
    };
    for (const { from, to, name: text } of runs(spec.x.count, name, narrow)) {
      if ((to - from) * place.wide < NARROWEST_GLYPH) continue;
      const fill = inkOn(spec.colour(spec.value(from, y) ?? 0));
      const at = { x: place.left((from + to) / 2), y: place.top(y + 0.5), dy: "0.35em" };
      add(own.node, "text", { ...at, fill }, text);
    }
  }
}

function drawMarks(sheet: Sheet, spec: HeatSpec, box: Box, place: CellPlaces): void {
  const { mark, rule } = sheet.inks;
  for (const { at, strong, colour } of spec.x.marks ?? []) {
    const x = Math.round(place.left(at)) + 0.5;
    const line = { x1: x, x2: x, y1: box.top, y2: box.bottom };
    const stroke = colour ? sheet.shade(colour) : strong ? mark : rule;
    add(sheet.node, "line", { ...line, stroke, "stroke-width": strong ? 2 : 1 });
  }
  for (const { at, strong, colour } of spec.y.marks ?? []) {
    const y = Math.round(place.top(at)) + 0.5;
    const line = { x1: box.left, x2: box.right, y1: y, y2: y };
    const stroke = colour ? sheet.shade(colour) : strong ? mark : rule;
    add(sheet.node, "line", { ...line, stroke, "stroke-width": strong ? 2 : 1 });
  }
}

/** The fill and edge of dots. */
export const DOT = { fill: "#e69f00", stroke: "#1c1300" };

function drawDots(sheet: Sheet, spec: HeatSpec, place: CellPlaces): void {
  if (!spec.dots?.length) return;
  const r = rounded(Math.max(Math.min(place.wide, place.high, 9) / 2, 1.6));
  const d = spec.dots.map(([x, y]) => {
    const [left, top] = [rounded(place.left(x + 0.5) - r), rounded(place.top(y + 0.5))];
    return `M${left} ${top}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0z`;
  });
  const stroke = r > 2.5 ? DOT.stroke : null;
  add(sheet.node, "path", { d: d.join(""), fill: DOT.fill, stroke });
}

/** The frames of a row and of a column; none around what the heat map does not have. */
export function cursorFrames(
  spec: Pick<HeatSpec, "x" | "y">,
  box: Box,
  at: NonNullable<HeatSpec["at"]>,
): { x: number; y: number; width: number; height: number }[] {
  const place = cellPlaces(spec, box);
  const frames: { x: number; y: number; width: number; height: number }[] = [];
  if (at.x !== null && at.x < spec.x.count) {
    const width = Math.max(place.wide, 3) + 2;
    frames.push({ x: place.left(at.x) - 1, y: box.top, width, height: box.bottom - box.top });
  }
  if (at.y !== null && at.y < spec.y.count) {
    const height = Math.max(place.high, 3) + 2;
    frames.push({ x: box.left, y: place.top(at.y) - 1, width: box.right - box.left, height });
  }
  return frames;
}

/** Draw a frame around a cell, or around a row or column where the other axis is null. */
export function drawHeatCursor(
  sheet: Sheet,
  spec: HeatSpec,
  box: Box,
  at: HeatSpec["at"] | null,
): void {
  if (!at) return;
  const frames = cursorFrames(spec, box, at);
  const { paper, mark } = sheet.inks;
  for (const look of [{ stroke: paper }, { stroke: mark, "stroke-dasharray": "4 3" }]) {
    for (const frame of frames) {
      add(sheet.node, "rect", { ...frame, fill: "none", "stroke-width": 2, ...look });
    }
  }
}
