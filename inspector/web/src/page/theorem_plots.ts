/** The two drawings of the theorem's widget. */
import { scaleLinear } from "d3-scale";
import { drawAxis } from "../figures/axis.ts";
import { sizeSvg } from "../figures/screen.ts";
import type { Box } from "../figures/scales.ts";
import { PAPER } from "../figures/inks.ts";
import {
  add,
  FONTS,
  hatchFill,
  layer,
  measurer,
  screenSheet,
  TEXT,
  type Sheet,
} from "../figures/svg.ts";
import type { Outcome, Scene } from "./theorem_model.ts";

const MONO = "ui-monospace, Menlo, Consolas, monospace";
const TYPE = `${TEXT}px ${FONTS.screen}`;
const ZONE = { from: 2, to: 6, most: 0.75, row: 34 };
const FAINT = 0.28;

/** The colours of the widget's theme. */
export interface TheoremInks {
  text: string;
  soft: string;
  rule: string;
  card: string;
  p: string;
  q: string;
  zone: string;
}

/** The inks of the theme in which an element is shown. */
export function theoremInks(node: Element): TheoremInks {
  const style = getComputedStyle(node);
  const read = (name: string): string => style.getPropertyValue("--ds-" + name).trim();
  return {
    text: read("text"),
    soft: read("soft"),
    rule: read("rule"),
    card: read("card"),
    p: read("th-p"),
    q: read("th-q"),
    zone: read("th-zone"),
  };
}

/** Empty a drawing, and size it to the width of its parent; returns its sheet and width. */
function begin(svg: SVGSVGElement, height: number, inks: TheoremInks): [Sheet, number] {
  const width = Math.max(svg.parentElement?.clientWidth ?? 0, 160);
  svg.replaceChildren();
  sizeSvg(svg, width, height);
  const own = { ...PAPER, ink: inks.soft, rule: inks.rule, mark: inks.text, paper: inks.card };
  return [layer(screenSheet(svg, own), { "aria-hidden": "true" }), width];
}

/** Draw P and Q of the largest outcomes as pairs of bars. */
export function drawBars(svg: SVGSVGElement, scene: Scene, inks: TheoremInks): void {
  const { listed } = scene;
  const row = listed.length > 8 ? 28 : listed.length > 4 ? 34 : 46;
  const [sheet, width] = begin(svg, listed.length * row + 22, inks);
  const measure = measurer("12px " + MONO);
  const left = Math.ceil(Math.max(...listed.map(({ name }) => measure(name)))) + 10;
  const most = Math.ceil(Math.max(...listed.map(({ p, q }) => Math.max(p, q))) * 10) / 10;
  const box = { left, top: 0, right: width - 62, bottom: listed.length * row };
  const x = scaleLinear([0, most], [box.left, box.right]);
  const gap = most > 0.5 ? 0.2 : most > 0.2 ? 0.1 : 0.05;
  const count = Math.floor(most / gap + 1e-9);
  const ticks = Array.from({ length: count + 1 }, (_, i) => +(i * gap).toFixed(2));
  const named = ticks.map((at) => ({ at, text: String(at) }));
  drawAxis(sheet, { side: "x", scale: x, ticks: named, grid: true }, box);
  const stripes = hatchFill(sheet, "ds-theorem-stripes", { ink: inks.q, width: 1.5 });
  const thick = (row - 6) / 2;
  const p = { of: "p", best: scene.bestP, fill: inks.p, line: inks.p, thick, left } as const;
  const q = { of: "q", best: scene.bestQ, fill: stripes, line: inks.q, thick, left } as const;
  listed.forEach((outcome, i) => {
    const top = i * row + 3;
    const at = { x: left - 8, y: top + thick, dy: "0.35em", "text-anchor": "end" };
    const look = { fill: inks.text, "font-family": MONO, "font-size": 12 };
    add(sheet.node, "text", { ...at, ...look }, outcome.name);
    drawBar(sheet, outcome, p, top, x(outcome.p));
    drawBar(sheet, outcome, q, top + thick, x(outcome.q));
  });
}

/** What the bars of P, or of Q, have in common. */
interface Bars {
  of: "p" | "q";
  best: readonly Outcome[];
  fill: string;
  line: string;
  left: number;
  thick: number;
}

/** Draw a bar up to `end` with its number behind it. */
function drawBar(sheet: Sheet, outcome: Outcome, bars: Bars, top: number, end: number): void {
  const { of, fill, line, left, thick } = bars;
  const width = Math.max(end - left, 0);
  const bar = { x: left, y: top, width, height: thick - 1, fill };
  add(sheet.node, "rect", { ...bar, "data-bar": of });
  const frame = { x: left + 0.75, y: top + 0.75, width: Math.max(width - 1.5, 0) };
  const edge = { fill: "none", stroke: line, "stroke-width": 1.5 };
  add(sheet.node, "rect", { ...frame, height: thick - 2.5, ...edge });
  const best = bars.best.includes(outcome);
  const weight = best ? "bold" : null;
  const text = outcome[of].toFixed(3) + (best ? " ★" : "");
  const wide = measurer((best ? "bold " : "") + TYPE)(text) + 4;
  const ground = { x: end + 4, y: top + thick / 2 - 5, width: wide, height: 10 };
  add(sheet.node, "rect", { ...ground, fill: sheet.inks.paper });
  const at = { x: end + 6, y: top + thick / 2, dy: "0.32em", "font-weight": weight };
  add(sheet.node, "text", { ...at, fill: sheet.inks.mark }, text);
}

/** Draw where the theorem holds, and the point of a scene. */
export function drawZone(svg: SVGSVGElement, scene: Scene, inks: TheoremInks): void {
  const rows = ZONE.to - ZONE.from + 1;
  const [sheet, width] = begin(svg, rows * ZONE.row + 44, inks);
  const box = { left: 30, top: 6, right: width - 44, bottom: rows * ZONE.row + 6 };
  const x = scaleLinear([0, ZONE.most], [box.left, box.right]);
  const top = (tokens: number): number => box.bottom - (tokens - ZONE.from + 1) * ZONE.row;
  const ticks = Array.from({ length: 8 }, (_, i) => ({ at: i / 10, text: String(i / 10) }));
  drawAxis(sheet, { side: "x", scale: x, ticks, grid: true }, box);
  for (let k = ZONE.from; k <= ZONE.to; k++)
    drawZoneRow(sheet, k, x(1 / (k + 1)), top(k), box, inks);
  const end = { x: box.right, y: box.bottom + 32, "text-anchor": "end", fill: inks.soft };
  add(sheet.node, "text", { ...end, "font-size": 12, "font-weight": "bold" }, "ε");
  drawZoneLegend(sheet, box, inks);
  drawPoint(sheet, x(scene.epsilon), top(scene.k) + ZONE.row / 2, scene.safe, inks);
}

function drawZoneRow(
  sheet: Sheet,
  tokens: number,
  end: number,
  top: number,
  box: Box,
  inks: TheoremInks,
): void {
  const area = { x: box.left, y: top, width: end - box.left, height: ZONE.row };
  const named = { "data-tokens": String(tokens) };
  add(sheet.node, "rect", { ...area, fill: inks.zone, "fill-opacity": FAINT, ...named });
  const low = { x1: box.left, x2: box.right, y1: top + ZONE.row, y2: top + ZONE.row };
  add(sheet.node, "line", { ...low, stroke: inks.rule });
  const edge = { x1: end, x2: end, y1: top, y2: top + ZONE.row };
  add(sheet.node, "line", { ...edge, stroke: inks.zone, "stroke-width": 3 });
  const at = { y: top + ZONE.row / 2, dy: "0.35em", fill: inks.soft };
  const name = (tokens === ZONE.to ? "k " : "") + String(tokens);
  add(sheet.node, "text", { ...at, x: box.left - 6, "text-anchor": "end" }, name);
  add(sheet.node, "text", { ...at, x: box.right + 4 }, `ε ≤ 1/${tokens + 1}`);
}

function drawZoneLegend(sheet: Sheet, { left, bottom }: Box, inks: TheoremInks): void {
  const y = bottom + 22;
  const area = { x: left, y, width: 22, height: 12 };
  add(sheet.node, "rect", { ...area, fill: inks.zone, "fill-opacity": FAINT });
  const edge = { x1: left + 22, x2: left + 22, y1: y, y2: y + 12 };
  add(sheet.node, "line", { ...edge, stroke: inks.zone, "stroke-width": 3 });
  const at = { x: left + 30, y: y + 10, fill: inks.soft };
  add(sheet.node, "text", at, "guaranteed: (k + 1)ε ≤ 1");
}

function drawPoint(sheet: Sheet, x: number, y: number, safe: boolean, inks: TheoremInks): void {
  const look = { stroke: inks.text, "stroke-width": 2 };
  add(sheet.node, "circle", { cx: x, cy: y, r: 6, fill: safe ? inks.text : inks.card, ...look });
  if (safe) return;
  const cross = `M${x - 3} ${y - 3}l6 6m0 -6l-6 6`;
  add(sheet.node, "path", { d: cross, ...look });
}
