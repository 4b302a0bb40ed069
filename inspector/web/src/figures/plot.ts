/** Charts. */
import { curveLinear, curveStepAfter, line } from "d3-shape";
import { drawAxis, drawAxisNames } from "./axis.ts";
import { plotScale, plotTicks, type Box, type PlotScale } from "./scales.ts";
import type { PlotSpec, Rule, Series } from "./spec.ts";
import { add, layer, rounded, TEXT, type Sheet } from "./svg.ts";

interface Place {
  x: PlotScale;
  y: PlotScale;
  box: Box;
}

const CURSOR_DASH = [4, 3];
const ROOM = 2; // CSS pixels that lines may reach beyond the box
let clips = 0; // how many clip paths were made; their names are unique in a document

function placeOf(spec: PlotSpec, box: Box): Place {
  return {
    x: plotScale(spec.x, box.left, box.right),
    y: plotScale(spec.y, box.bottom, box.top),
    box,
  };
}

/** Draw a chart without its cursor. */
export function drawPlot(sheet: Sheet, spec: PlotSpec, box: Box): void {
  const place = placeOf(spec, box);
  const { x, y } = place;
  const [wide, high] = [box.right - box.left, box.bottom - box.top];
  drawAxis(sheet, { side: "x", scale: x, ticks: plotTicks(spec.x, wide, "x"), grid: true }, box);
  drawAxis(sheet, { side: "y", scale: y, ticks: plotTicks(spec.y, high, "y"), grid: true }, box);
  drawAxisNames(sheet, spec.x.name, spec.y.name, true, box);
  const inside = clipped(sheet, box);
  for (const series of spec.series) {
    if (series.kind === "points") drawPoints(sheet, series, place);
    else drawSeries(inside, series, place);
  }
  for (const rule of spec.rules ?? []) drawRule(sheet, rule, place);
  for (const label of spec.labels ?? []) {
    const [px, py] = [x(label.x), y(label.y)];
    const flip = px > box.right - 30;
    const at = { x: px + (flip ? -8 : 8), y: Math.max(py + 4, 12) };
    const look = { "text-anchor": flip ? "end" : "start", "font-weight": "bold", "font-size": 12 };
    add(sheet.node, "text", { ...at, ...look, fill: sheet.shade(label.colour) }, label.text);
  }
}

/** A group of which only the part in the box is seen. */
function clipped(sheet: Sheet, { left, top, right, bottom }: Box): Sheet {
  const id = `ds-clip-${++clips}`;
  const path = add(sheet.node, "clipPath", { id });
  const size = { width: right - left + 2 * ROOM, height: bottom - top + 2 * ROOM };
  add(path, "rect", { x: left - ROOM, y: top - ROOM, ...size });
  return layer(sheet, { "clip-path": `url(#${id})` });
}

/** Whether a point is in the box, or on its edge. */
function inBox({ left, top, right, bottom }: Box, px: number, py: number): boolean {
  return px >= left - 0.5 && px <= right + 0.5 && py >= top - 0.5 && py <= bottom + 0.5;
}

/**
 * Draw the cursor of a chart: the line at its x, and a ring around the value that is read, which
 * stays at the edge of the box where the value is beyond it.
 */
export function drawPlotCursor(
  sheet: Sheet,
  spec: PlotSpec,
  box: Box,
  stop: readonly [number, number] | null,
): void {
  const place = placeOf(spec, box);
  if (spec.at !== undefined && spec.at !== null) {
    drawRule(sheet, { x: spec.at, colour: sheet.inks.mark, dash: CURSOR_DASH }, place);
  }
  if (!stop) return;
  const ring = { fill: "none", stroke: sheet.inks.mark, "stroke-width": 2 };
  const cx = Math.min(Math.max(place.x(stop[0]), box.left), box.right);
  const cy = Math.min(Math.max(place.y(stop[1]), box.top), box.bottom);
  add(sheet.node, "circle", { cx, cy, r: 6, ...ring });
}

/** Whether a y is drawn. */
function known(y: number | null | undefined): y is number {
  return typeof y === "number" && !Number.isNaN(y);
}

function drawSeries(sheet: Sheet, series: Series, place: Place): void {
  const colour = sheet.shade(series.colour);
  const own = layer(sheet, { opacity: series.alpha });
  if (series.kind === "bars") {
    add(own.node, "path", { d: barsPath(series, place), fill: colour });
  } else {
    const d = linePath(series, place);
    const dash = series.dash?.length ? series.dash.join(" ") : null;
    const look = { fill: "none", stroke: colour, "stroke-width": series.width ?? 2 };
    const ends = { "stroke-linejoin": "round", "stroke-linecap": dash ? null : "round" };
    add(own.node, "path", { d, ...look, "stroke-dasharray": dash, ...ends }); // a point is a dot
  }
}

function linePath(series: Series, { x, y }: Place): string {
  const path = line<number>()
    .defined((_, i) => known(series.ys[i]))
    .x((value) => rounded(x(value)))
    .y((_, i) => rounded(y(series.ys[i] ?? 0)))
    .curve(series.kind === "step" ? curveStepAfter : curveLinear);
  return path(series.xs) ?? "";
}

/** Points in the box are drawn whole, and the others not at all. */
function drawPoints(sheet: Sheet, series: Series, { x, y, box }: Place): void {
  const colour = sheet.shade(series.colour);
  const own = layer(sheet);
  const r = series.size ?? 2.5;
  series.xs.forEach((value, i) => {
    const high = series.ys[i];
    if (!known(high)) return;
    const [cx, cy] = [rounded(x(value)), rounded(y(high))];
    if (!inBox(box, cx, cy)) return;
    const opacity = series.alpha;
    if (series.mark !== "cross") {
      add(own.node, "circle", { cx, cy, r, fill: colour, opacity });
      return;
    }
    const d = `M${cx - r} ${cy - r}l${2 * r} ${2 * r}m0 ${-2 * r}l${-2 * r} ${2 * r}`;
    add(own.node, "path", { d, stroke: colour, "stroke-width": series.width ?? 2, opacity });
  });
}

function barsPath(series: Series, { x, y, box }: Place): string {
  const half = (series.wide ?? 0.8) / 2;
  const bars = series.xs.map((value, i) => {
    const tall = series.ys[i];
    if (!known(tall)) return "";
    const low = series.base ? series.base[i] : 0;
    const [from, to] = series.ends ? [value, series.ends[i]] : [value - half, value + half];
    const [left, top] = [x(from), y(low + tall)];
    const wide = Math.max(x(to) - left, 1);
    const high = Math.max(Math.min(y(low), box.bottom) - top, 0);
    const [px, py, w, h] = [left, top, wide, high].map(rounded);
    return `M${px} ${py}h${w}v${h}h${-w}z`;
  });
  return bars.join("");
}

function drawRule(sheet: Sheet, rule: Rule, { x, y, box }: Place): void {
  const [px, py] = [x(rule.x ?? 0), y(rule.y ?? 0)];
  const upright = rule.x !== undefined;
  if (!inBox(box, upright ? px : box.left, upright ? box.top : py)) return;
  const ends = upright
    ? { x1: px, x2: px, y1: box.top, y2: box.bottom }
    : { x1: box.left, x2: box.right, y1: py, y2: py };
  const stroke = rule.colour ? sheet.shade(rule.colour) : sheet.inks.mark;
  const dash = rule.dash?.length ? rule.dash.join(" ") : null;
  add(sheet.node, "line", { ...ends, stroke, "stroke-width": 1.5, "stroke-dasharray": dash });
  if (!rule.text) return;
  const at = upright ? { x: px - 3, y: box.top + 10 } : { x: box.right - 3, y: py - 4 };
  const look = { fill: sheet.inks.ink, "text-anchor": "end", "font-size": TEXT };
  add(sheet.node, "text", { ...at, ...look }, rule.text);
}
