import type { Rgb } from "../base/colours.ts";

/** The colours of a theme that figures are drawn in, as CSS colours. */
export interface Inks {
  /** Text. */
  ink: string;
  /** Grid lines. */
  rule: string;
  /** Cursor, and lines that stand out. */
  mark: string;
  /** Ground. */
  paper: string;
  /** Hatch of cells without data. */
  hatch: string;
  /** Lanes A and B. */
  a: string;
  b: string;
  mask: string;
  new: string;
  sure: string;
  differs: string;
}

type Name = keyof Inks;

/** The CSS variable of each ink. */
export const VARIABLES: Readonly<Record<Name, string>> = {
  ink: "--ds-soft",
  rule: "--ds-rule",
  mark: "--ds-text",
  paper: "--ds-card",
  hatch: "--ds-dot",
  a: "--ds-a",
  b: "--ds-b",
  mask: "--ds-mask",
  new: "--ds-new",
  sure: "--ds-sure",
  differs: "--ds-differs",
};

/** The inks of the light theme, which saved figures have whatever the theme of the page. */
export const PAPER: Inks = {
  ink: "#4d5867",
  rule: "#d5dbe3",
  mark: "#161d27",
  paper: "#ffffff",
  hatch: "#9aa5b3",
  a: "#55606f",
  b: "#0b6e54",
  mask: "#e9edf2",
  new: "#e69f00",
  sure: "#0072b2",
  differs: "#d55e00",
};

const NAMES = Object.keys(VARIABLES) as Name[];

/** The inks of the theme in which an element is shown. */
export function inks(node: Element): Inks {
  const style = getComputedStyle(node);
  const read = (name: Name): string => style.getPropertyValue(VARIABLES[name]).trim();
  const found = NAMES.map((name) => [name, read(name) || PAPER[name]]);
  return Object.fromEntries(found) as Record<Name, string>;
}

/**
 * Replaces each ink of one theme by the same ink of another; leaves other colours alone. Where a
 * theme has one colour for several inks, as with forced colours, it is the first of them.
 */
export function retinted(from: Inks, to: Inks): (colour: string) => string {
  const known = new Map(NAMES.toReversed().map((name) => [from[name], to[name]]));
  return (colour) => known.get(colour) ?? colour;
}

/** Red, green and blue of any CSS colour. */
export function toRgb(colour: string): Rgb {
  const pen = document.createElement("canvas").getContext("2d");
  if (!pen) return [0, 0, 0];
  pen.fillStyle = colour;
  pen.fillRect(0, 0, 1, 1);
  const [r, g, b] = pen.getImageData(0, 0, 1, 1).data;
  return [r, g, b];
}
