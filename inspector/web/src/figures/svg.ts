/** Drawing into SVG elements. */
import { PAPER, type Inks } from "./inks.ts";

const SVG = "http://www.w3.org/2000/svg";

/** The fonts of figures. Saved ones name fonts that other programs have too. */
export const FONTS = { screen: "system-ui, sans-serif", paper: "Arial, Helvetica, sans-serif" };

/** The size of the text in figures, in CSS pixels. */
export const TEXT = 11;

type Attributes = Readonly<Record<string, string | number | null | undefined>>;

/** Where a figure is drawn, and in which colours. */
export interface Sheet {
  node: SVGElement;
  inks: Inks;
  /** The colour to draw a colour of the spec in. */
  shade: (colour: string) => string;
}

/** A sheet in the inks of the page's theme. */
export function screenSheet(node: SVGElement, inks: Inks): Sheet {
  return { node, inks, shade: (colour) => colour };
}

/** A sheet in the inks of the light theme. */
export function paperSheet(node: SVGElement, shade: (colour: string) => string): Sheet {
  return { node, inks: PAPER, shade };
}

/** Set attributes; numbers are rounded to hundredths, and null and undefined are left out. */
export function put(node: SVGElement, attributes: Attributes): void {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined) continue;
    node.setAttribute(name, typeof value === "number" ? String(rounded(value)) : value);
  }
}

/** A number rounded to hundredths, as precise as a drawing needs. */
export function rounded(value: number): number {
  return Math.round(value * 100) / 100;
}

/** A new SVG element. */
export function element<K extends keyof SVGElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
): SVGElementTagNameMap[K] {
  const node = document.createElementNS(SVG, tag);
  put(node, attributes);
  return node;
}

/** Append an SVG element. */
export function add<K extends keyof SVGElementTagNameMap>(
  parent: SVGElement,
  tag: K,
  attributes: Attributes = {},
  text?: string,
): SVGElementTagNameMap[K] {
  const node = element(tag, attributes);
  if (text !== undefined) node.textContent = text;
  parent.append(node);
  return node;
}

/** Append a group, as a sheet of its own. */
export function layer(sheet: Sheet, attributes: Attributes = {}): Sheet {
  return { ...sheet, node: add(sheet.node, "g", attributes) };
}

/** The width of texts in CSS pixels, in a font such as "bold 11px Arial". */
export function measurer(font: string): (text: string) => number {
  const pen = document.createElement("canvas").getContext("2d");
  if (!pen) return (text) => text.length * 6;
  pen.font = font;
  return (text) => pen.measureText(text).width;
}

/** Break a text into lines of at most a width; a longer word has a line of its own. */
export function wrapped(text: string, width: number, measure: (text: string) => number): string[] {
  const lines: string[] = [];
  for (const word of text.split(" ")) {
    const last = lines.length - 1;
    const longer = last < 0 ? word : lines[last] + " " + word;
    if (last >= 0 && measure(longer) <= width) lines[last] = longer;
    else lines.push(word);
  }
  return lines;
}

/** The tile of a hatch: its size and the path of its line, in CSS pixels. */
export const HATCH = { size: 6, line: "M-1 7L7 -1" };

/** Append a pattern of slanted lines; returns the fill that refers to it. */
export function hatchFill(
  sheet: Sheet,
  id: string,
  look: { ink: string; paper?: string; width?: number },
): string {
  const { size, line } = HATCH;
  const box = { id, width: size, height: size, patternUnits: "userSpaceOnUse" };
  const tile = add(sheet.node, "pattern", box);
  if (look.paper) add(tile, "rect", { width: size, height: size, fill: look.paper });
  add(tile, "path", { d: line, stroke: look.ink, "stroke-width": look.width ?? 1 });
  return "url(#" + id + ")";
}
