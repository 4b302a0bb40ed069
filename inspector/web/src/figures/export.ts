/** Figures as files for a paper: light, with title and legend, drawn as on the page. */
import { make } from "../base/dom.ts";
import { crowded, drawGround, drawHeatFront, HeatRaster, paintCells } from "./heat.ts";
import { PAPER, retinted, type Inks } from "./inks.ts";
import { drawLegend, legendKeys } from "./legend.ts";
import { drawPlot } from "./plot.ts";
import { withResolution } from "./png.ts";
import { layoutOf, type Layout } from "./scales.ts";
import type { FigureSpec, HeatSpec } from "./spec.ts";
import {
  add,
  element,
  FONTS,
  layer,
  measurer,
  paperSheet,
  TEXT,
  wrapped,
  type Sheet,
} from "./svg.ts";

/** Widths of saved figures in CSS pixels, of which there are 96 in an inch. */
export const WIDTHS = [600, 900, 1200] as const;

const DPI = 300;
const DENSE = DPI / 96; // pixels of a CSS pixel
const TITLE = { size: 13, line: 17, pad: 8 };
const GAP = 8;

/** A figure as an SVG drawing that stands alone. `screen`: the inks that its spec was made in. */
export function paperFigure(spec: FigureSpec, width: number, screen: Inks): SVGSVGElement {
  const root = element("svg", { width, "font-family": FONTS.paper, "font-size": TEXT });
  const sheet = paperSheet(root, retinted(screen, PAPER));
  const ground = add(root, "rect", { x: 0, y: 0, width, fill: PAPER.paper });
  const top = drawTitle(sheet, spec.title, width) + GAP;
  const layout = layoutOf(spec, width);
  const drawing = layer(sheet, { transform: `translate(0 ${top})` });
  if (spec.series) drawPlot(drawing, spec, layout.box);
  else drawHeat(drawing, spec, layout);
  const below = top + layout.height + GAP;
  const keys = legendKeys(spec, !spec.series && crowdedOnPaper(spec, layout));
  const legend = layer(sheet, { transform: `translate(0 ${below})` });
  const tall = drawLegend(legend, keys, width, measurer(`${TEXT}px ${FONTS.paper}`));
  const height = String(Math.ceil(below + tall + GAP));
  root.setAttribute("height", height);
  root.setAttribute("viewBox", `0 0 ${width} ${height}`);
  ground.setAttribute("height", height);
  return root;
}

/** Write the title from the top; returns the height of its lines. */
function drawTitle(sheet: Sheet, title: string, width: number): number {
  const measure = measurer(`bold ${TITLE.size}px ${FONTS.paper}`);
  const lines = wrapped(title, width - TITLE.pad, measure);
  const look = { "font-size": TITLE.size, "font-weight": "bold", fill: sheet.inks.mark };
  lines.forEach((line, i) => {
    add(sheet.node, "text", { x: 2, y: (i + 1) * TITLE.line, ...look }, line);
  });
  return lines.length * TITLE.line;
}

function paperPixels({ box }: Layout): [number, number] {
  return [(box.right - box.left) * DENSE, (box.bottom - box.top) * DENSE];
}

function crowdedOnPaper(spec: HeatSpec, layout: Layout): boolean {
  const [wide, high] = paperPixels(layout).map(Math.round);
  return crowded(spec, wide, high);
}

/** Draw a heat map with its cells as an image in PNG. */
function drawHeat(sheet: Sheet, spec: HeatSpec, layout: Layout): void {
  const { box } = layout;
  drawGround(sheet, spec, box, "hatch");
  const image = make("canvas");
  const [wide, high] = [box.right - box.left, box.bottom - box.top];
  [image.width, image.height] = paperPixels(layout).map(Math.round);
  const pen = image.getContext("2d");
  if (pen) {
    pen.scale(image.width / wide, image.height / high);
    pen.translate(-box.left, -box.top);
    paintCells(pen, spec, box, new HeatRaster(), DENSE);
  }
  const place = { x: box.left, y: box.top, width: wide, height: high };
  const href = image.toDataURL("image/png");
  add(sheet.node, "image", { ...place, href, preserveAspectRatio: "none" });
  drawHeatFront(sheet, spec, box);
}

/** Write a file, and call `fail` if the browser cannot, as for a picture that is too large. */
export async function attempt(take: () => unknown, fail: () => void): Promise<void> {
  try {
    await take();
  } catch {
    fail();
  }
}

/** A drawing as the text of an SVG file. */
export function svgText(root: SVGSVGElement): string {
  return new XMLSerializer().serializeToString(root);
}

/** A drawing as a PNG file of 300 dots per inch. */
export async function pngBlob(root: SVGSVGElement): Promise<Blob> {
  const source = URL.createObjectURL(new Blob([svgText(root)], { type: "image/svg+xml" }));
  try {
    const image = new Image();
    image.src = source;
    await image.decode();
    const canvas = make("canvas");
    canvas.width = Math.round(Number(root.getAttribute("width")) * DENSE);
    canvas.height = Math.round(Number(root.getAttribute("height")) * DENSE);
    canvas.getContext("2d")?.drawImage(image, 0, 0, canvas.width, canvas.height);
    const blob = await new Promise<Blob | null>((give) => canvas.toBlob(give, "image/png"));
    if (!blob) throw new Error("the browser could not write the PNG file");
    const bytes = new Uint8Array(await blob.arrayBuffer());
    return new Blob([withResolution(bytes, DPI)], { type: "image/png" });
  } finally {
    URL.revokeObjectURL(source);
  }
}
