/** Drawings on the page. Each redraws only what has changed. */
import { make } from "../base/dom.ts";
import {
  crowded,
  drawHeatCursor,
  drawHeatFront,
  HeatRaster,
  paintCells,
  paintGround,
} from "./heat.ts";
import { inks, type Inks } from "./inks.ts";
import { severalOf } from "./cells.ts";
import { drawPlot, drawPlotCursor } from "./plot.ts";
import type { Stop } from "./reading.ts";
import { cellPlaces, cellTicks, layoutOf, plotTicks, type Box, type Layout } from "./scales.ts";
import type { HeatSpec, PlotSpec } from "./spec.ts";
import { add, element, FONTS, put, screenSheet, TEXT, type Sheet } from "./svg.ts";

const LEAST_WIDTH = 160; // of a drawing that is hidden

/** What a screen shows now: its layout and inks. */
export interface Shown extends Layout {
  inks: Inks;
}

function shownIn(holder: Element, spec: HeatSpec | PlotSpec): Shown {
  const width = Math.max(holder.clientWidth, LEAST_WIDTH);
  return { ...layoutOf(spec, width), inks: inks(holder) };
}

/** Set the size of an outermost SVG element and the font of its text. */
export function sizeSvg(svg: SVGSVGElement, width: number, height: number): void {
  put(svg, { width, height, "font-family": FONTS.screen, "font-size": TEXT });
}

function boxText({ left, top, right, bottom }: Box): string {
  return [left, top, right, bottom].map((v) => v.toFixed(2)).join();
}

function layers(svg: SVGSVGElement): { front: SVGGElement; cursor: SVGGElement } {
  const front = add(svg, "g", { "aria-hidden": "true" });
  return { front, cursor: add(svg, "g", { "aria-hidden": "true", "pointer-events": "none" }) };
}

/** A group emptied, as a sheet. */
function cleared(node: SVGGElement, inks: Inks): Sheet {
  node.replaceChildren();
  return screenSheet(node, inks);
}

const MANY = 1000; // values, above which arrays are compared as objects
const KNOWN = new WeakMap<object, number>();
let known = 0;

/** A list as a stamp that changes with its values; of a long one, with the object. */
function stampOf<Value>(values: readonly Value[]): readonly Value[] | number {
  if (values.length <= MANY) return values;
  const stamp = KNOWN.get(values) ?? ++known;
  KNOWN.set(values, stamp);
  return stamp;
}

/** A chart in an SVG element, which states its box in the attribute `data-box`. */
export class PlotScreen {
  private readonly front: SVGGElement;
  private readonly cursor: SVGGElement;
  private stamp = "";

  /** Draw into `svg`, as wide as its parent element. */
  constructor(readonly svg: SVGSVGElement = element("svg")) {
    svg.replaceChildren();
    const { front, cursor } = layers(svg);
    this.front = front;
    this.cursor = cursor;
  }

  /** Draw the chart, and a ring around the value that is read. */
  draw(spec: PlotSpec, stop: Stop | null = null): Shown | null {
    const holder = this.svg.parentElement;
    if (!holder || !this.svg.isConnected) return null;
    const shown = shownIn(holder, spec);
    const { box, inks, width, height } = shown;
    const { x, y, series, rules, labels } = spec;
    const ticks = [
      plotTicks(x, box.right - box.left, "x"),
      plotTicks(y, box.bottom - box.top, "y"),
    ];
    const values = series.map((one) => ({ ...one, xs: stampOf(one.xs), ys: stampOf(one.ys) }));
    const stamp = JSON.stringify([x, y, values, rules, labels, ticks, shown]);
    if (stamp !== this.stamp) {
      this.stamp = stamp;
      sizeSvg(this.svg, width, height);
      this.svg.dataset.box = boxText(box);
      drawPlot(cleared(this.front, inks), spec, box);
    }
    drawPlotCursor(cleared(this.cursor, inks), spec, box, stop);
    return shown;
  }
}

/** A heat map: a canvas with the cells, under an SVG element with everything else. */
export class HeatScreen {
  readonly root = make("div", "ds-heat");
  readonly canvas = make("canvas");
  private readonly svg = element("svg", { class: "ds-front", "aria-hidden": "true" });
  private readonly front: SVGGElement;
  private readonly cursor: SVGGElement;
  private readonly area = element("rect", { "fill-opacity": 0.15 });
  private raster = new HeatRaster();
  private cellStamp = "";
  private frontStamp = "";

  constructor() {
    const { front, cursor } = layers(this.svg);
    this.front = front;
    this.cursor = cursor;
    this.area.style.display = "none";
    this.svg.append(this.area);
    this.root.append(this.canvas, this.svg);
  }

  /** Forget the cells that were drawn. */
  forget(): void {
    if (this.cellStamp) this.raster = new HeatRaster();
    this.cellStamp = "";
  }

  /** Mark the rectangle that a drag has drawn; null for none. */
  mark(area: Box | null): void {
    this.area.style.display = area ? "" : "none";
    if (!area) return;
    const size = { width: area.right - area.left, height: area.bottom - area.top };
    const { mark } = inks(this.root);
    put(this.area, { x: area.left, y: area.top, ...size, fill: mark, stroke: mark });
  }

  /** Draw the heat map with a frame around the cell `at`. */
  draw(spec: HeatSpec, at: HeatSpec["at"] | null): Shown | null {
    if (!this.root.isConnected) return null;
    const shown = shownIn(this.root, spec);
    const { box, inks, width, height } = shown;
    const dense = window.devicePixelRatio || 1;
    const size = JSON.stringify([spec.key, shown, spec.x.count, spec.y.count, severalOf(spec)]);
    const cellStamp = JSON.stringify([size, dense, spec.ground]);
    if (cellStamp !== this.cellStamp) {
      this.cellStamp = cellStamp;
      this.paint(spec, shown, dense);
    }
    const { x, y, dots } = spec;
    const ticks = [
      cellTicks(x, box.right - box.left, "x"),
      cellTicks(y, box.bottom - box.top, "y"),
    ];
    const frontStamp = JSON.stringify([size, x, y, dots, ticks, Boolean(spec.glyph)]);
    if (frontStamp !== this.frontStamp) {
      this.frontStamp = frontStamp;
      sizeSvg(this.svg, width, height);
      drawHeatFront(cleared(this.front, inks), spec, box);
    }
    drawHeatCursor(cleared(this.cursor, inks), spec, box, at);
    return shown;
  }

  private paint(spec: HeatSpec, { width, height, box, inks }: Shown, dense: number): void {
    const { canvas } = this;
    const [wide, high] = [Math.round(width * dense), Math.round(height * dense)];
    if (canvas.width !== wide) canvas.width = wide;
    if (canvas.height !== high) canvas.height = high;
    canvas.style.height = `${height}px`;
    canvas.dataset.box = boxText(box);
    canvas.dataset.cells = `${spec.x.count},${spec.y.count}`;
    const pen = canvas.getContext("2d");
    if (!pen) return;
    pen.setTransform(dense, 0, 0, dense, 0, 0);
    pen.clearRect(0, 0, width, height);
    paintGround(pen, spec, box, inks);
    paintCells(pen, spec, box, this.raster, dense);
  }
}

/** Whether some device pixels of a heat map hold several cells. */
export function crowdedAt(spec: HeatSpec, { box }: Layout): boolean {
  const dense = window.devicePixelRatio || 1;
  const [wide, high] = [(box.right - box.left) * dense, (box.bottom - box.top) * dense];
  return crowded(spec, Math.round(wide), Math.round(high));
}

/** The cell of a heat map at a point of its drawing; null outside. */
export function cellAt(
  spec: HeatSpec,
  box: Box,
  px: number,
  py: number,
): { x: number; y: number } | null {
  return cellPlaces(spec, box).cell(px, py);
}
