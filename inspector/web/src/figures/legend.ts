/** Legends of figures: beside the drawing on the page, and in saved files. */
import { inkOn, rgb } from "../base/colours.ts";
import { make } from "../base/dom.ts";
import { severalOf } from "./cells.ts";
import { DOT } from "./heat.ts";
import type { Inks } from "./inks.ts";
import type { FigureSpec, Legend, ScaleLegend, Series } from "./spec.ts";
import { add, element, layer, screenSheet, type Sheet } from "./svg.ts";

/** A legend entry: its text and how its swatch is drawn. */
export interface Key {
  text: string;
  /** Null: a remark without a swatch. */
  swatch: { width: number; height: number; draw: (sheet: Sheet) => void } | null;
  scale?: ScaleLegend;
}

const SWATCH = { width: 24, height: 14 };
const RAMP = { left: 30, width: 230, height: 12, shades: 64, margin: 30, tall: 28 };
const MARK = "#d55e00";

/** What the legend says of pixels that hold several cells. */
const SEVERAL = {
  largest: "a pixel that holds several cells shows the largest",
  mean: "a pixel that holds several cells shows the mean",
  first: "a pixel that holds several cells shows the first one in this legend",
};

/** The entries of a figure's legend; `crowded`: some pixels hold several cells. */
export function legendKeys(spec: FigureSpec, crowded: boolean): Key[] {
  if (spec.series) {
    const named = spec.series.filter((series) => series.name);
    return named.map((series) => key(series.name, (sheet) => drawSeriesSwatch(sheet, series)));
  }
  const keys = cellKeys(spec.legend);
  if (!spec.ground) keys.push(key(spec.blank || "no data", drawHatchSwatch));
  if (spec.underName) {
    const look = { colour: "#00224e", ink: "#fff", edge: "under" } as const;
    keys.push(key(spec.underName, (sheet) => drawCellSwatch(sheet, look)));
  }
  if (spec.dots) {
    const at = { cx: SWATCH.width / 2, cy: SWATCH.height / 2, r: 4.5 };
    keys.push(
      key(spec.dotName || "committed here", (sheet) =>
        add(sheet.node, "circle", { ...at, ...DOT }),
      ),
    );
  }
  if (crowded) keys.push({ text: SEVERAL[severalOf(spec)], swatch: null });
  return keys;
}

function key(text: string, draw: (sheet: Sheet) => void): Key {
  return { text, swatch: { ...SWATCH, draw } };
}

function cellKeys(legend: Legend | undefined): Key[] {
  const keys: Key[] = [];
  if (legend?.kind === "scale") {
    const width = RAMP.left + RAMP.width + RAMP.margin;
    const swatch = { width, height: RAMP.tall, draw: (sheet: Sheet) => drawRamp(sheet, legend) };
    keys.push({ text: legend.name, swatch, scale: legend });
  }
  for (const [colour, text, glyph, edge] of legend?.items ?? []) {
    const look = { colour: rgb(colour), ink: inkOn(colour), glyph, edge };
    keys.push(key(text, (sheet) => drawCellSwatch(sheet, look)));
  }
  return keys;
}

interface CellLook {
  colour: string;
  ink: string;
  glyph?: string;
  edge?: "over" | "under";
}

function drawCellSwatch(sheet: Sheet, { colour, ink, glyph, edge }: CellLook): void {
  const box = { x: 3.5, y: 0.5, width: 17, height: 13 };
  add(sheet.node, "rect", { ...box, rx: 2, fill: colour, stroke: sheet.inks.rule });
  const line = { x: 4, width: 16, height: 3, fill: ink };
  if (edge) add(sheet.node, "rect", { ...line, y: edge === "over" ? 1 : 10 });
  if (!glyph) return;
  const look = { "font-size": 10, "font-weight": "bold", "text-anchor": "middle", fill: ink };
  add(sheet.node, "text", { x: 12, y: 10.5, ...look }, glyph);
}

/** Slanted lines over a swatch, without a pattern, whose name had to be unique on the page. */
function drawHatchSwatch(sheet: Sheet): void {
  const box = { x: 3.5, y: 0.5, width: 17, height: 13 };
  add(sheet.node, "rect", { ...box, fill: sheet.inks.paper, stroke: sheet.inks.rule });
  const [wide, high] = [16, 12];
  let d = "";
  for (let sum = 4; sum < wide + high; sum += 6) {
    const from = [Math.max(sum - high, 0), Math.min(sum, high)];
    const to = [Math.min(sum, wide), Math.max(sum - wide, 0)];
    d += `M${from[0] + 4} ${from[1] + 1}L${to[0] + 4} ${to[1] + 1}`;
  }
  add(sheet.node, "path", { d, stroke: sheet.inks.hatch });
}

function drawSeriesSwatch(sheet: Sheet, series: Series): void {
  const colour = sheet.shade(series.colour);
  const [x, y] = [SWATCH.width / 2, SWATCH.height / 2];
  if (series.mark === "cross") {
    const d = `M${x - 4} ${y - 4}l8 8m0 -8l-8 8`;
    add(sheet.node, "path", { d, stroke: colour, "stroke-width": 2 });
  } else if (series.kind === "points") {
    add(sheet.node, "circle", { cx: x, cy: y, r: 4, fill: colour });
  } else if (series.kind === "bars") {
    add(sheet.node, "rect", { x: 3, y: 2, width: 18, height: 10, fill: colour });
  } else {
    const dash = series.dash?.length ? series.dash.join(" ") : null;
    const look = { stroke: colour, "stroke-width": 3, "stroke-dasharray": dash };
    add(sheet.node, "line", { x1: 0, x2: SWATCH.width, y1: y, y2: y, ...look });
  }
}

function drawRamp(sheet: Sheet, legend: ScaleLegend): void {
  const { left, width, height, shades } = RAMP;
  for (let i = 0; i < shades; i++) {
    const from = left + (i * width) / shades;
    const fill = rgb(legend.colour(i / (shades - 1)));
    add(sheet.node, "rect", { x: from, y: 0, width: width / shades + 0.5, height, fill });
  }
  const frame = { x: left, y: 0.5, width, height: height - 0.5, fill: "none" };
  add(sheet.node, "rect", { ...frame, stroke: sheet.inks.rule });
  const labels = layer(sheet, { "text-anchor": "middle", "font-size": 11, fill: sheet.inks.ink });
  for (const [place, text] of legend.ticks) {
    add(labels.node, "text", { x: left + place * width, y: height + 12 }, text);
  }
  for (const place of legend.marks ?? []) {
    const box = { x: left + place * width - 1.5, y: 0, width: 3, height };
    add(sheet.node, "rect", { ...box, fill: MARK, stroke: "#fff", "stroke-width": 0.5 });
  }
}

/** A swatch as an element of its own. */
function swatchElement(key: Key, inks: Inks): SVGSVGElement | null {
  if (!key.swatch) return null;
  const { width, height, draw } = key.swatch;
  const viewBox = `0 0 ${width} ${height}`;
  const node = element("svg", { class: "ds-swatch", width, height, viewBox });
  if (key.scale) {
    const ends = key.scale.ticks.map(([, text]) => text).join(", ");
    node.setAttribute("role", "img");
    node.setAttribute("aria-label", "Colour scale: " + ends);
  } else node.setAttribute("aria-hidden", "true");
  draw(screenSheet(node, inks));
  return node;
}

/** The entries as items of a list. */
export function legendItems(keys: readonly Key[], inks: Inks): HTMLLIElement[] {
  return keys.map((key) => {
    const item = make("li", key.scale ? "ds-legend-scale" : "");
    const swatch = swatchElement(key, inks);
    const text = document.createTextNode(key.text);
    item.append(...(swatch === null ? [text] : key.scale ? [text, swatch] : [swatch, text]));
    return item;
  });
}

/** Draw the entries in rows of a width from the top of a sheet; returns their height. */
export function drawLegend(
  sheet: Sheet,
  keys: readonly Key[],
  width: number,
  measure: (text: string) => number,
): number {
  const [gap, pad] = [16, 6];
  let [x, y, tall] = [2, 0, 0];
  for (const { text, swatch, scale } of keys) {
    const [own, words] = [swatch?.width ?? 0, measure(text)];
    const wide = own + (own ? pad : 0) + words;
    if (x > 2 && x + wide > width) [x, y, tall] = [2, y + tall + pad, 0];
    const [at, from] = scale ? [x + words + pad, x] : [x, x + own + (own ? pad : 0)];
    add(sheet.node, "text", { x: from, y: y + 11, fill: sheet.inks.ink }, text);
    if (swatch) swatch.draw(layer(sheet, { transform: `translate(${at} ${y})` }));
    x += wide + gap;
    tall = Math.max(tall, swatch?.height ?? SWATCH.height);
  }
  return keys.length ? y + tall : 0;
}
