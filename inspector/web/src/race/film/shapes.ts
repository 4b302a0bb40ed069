/** Drawings of boxes and texts, which a canvas and an SVG file show alike. */
import { add, FONTS, type Sheet } from "../../figures/svg.ts";

/** A rectangle. */
export interface Box {
  x: number;
  y: number;
  width: number;
  height: number;
}

/** How a text looks. */
export interface Face {
  size: number;
  bold?: boolean;
  italic?: boolean;
}

/** A filled or outlined box. */
export interface BoxShape extends Box {
  text?: undefined;
  fill?: string;
  stroke?: string;
  /** Width of the outline; 1 by default. */
  thick?: number;
  round?: number;
}

/** A line of text; `x` is its left end, or its middle if it is centred, and `y` its baseline. */
export interface TextShape extends Face {
  text: string;
  x: number;
  y: number;
  fill: string;
  centred?: boolean;
  underlined?: boolean;
}

export type Shape = BoxShape | TextShape;

/** The width of a text. */
export type Measure = (text: string, face: Face) => number;

/** The CSS font of a face. */
function fontOf({ size, bold, italic }: Face): string {
  return `${italic ? "italic " : ""}${bold ? "bold " : ""}${size}px ${FONTS.paper}`;
}

/** A measure of texts by a canvas. */
export function canvasMeasure(pen: CanvasRenderingContext2D): Measure {
  return (text, face) => {
    pen.font = fontOf(face);
    return pen.measureText(text).width;
  };
}

/** The longest start of a text that fits into a width, with an ellipsis if something is left out. */
export function fitted(text: string, width: number, face: Face, measure: Measure): string {
  if (measure(text, face) <= width) return text;
  const chars = Array.from(text);
  let [low, high] = [0, chars.length];
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if (measure(chars.slice(0, middle).join("") + "…", face) <= width) low = middle;
    else high = middle - 1;
  }
  return low ? chars.slice(0, low).join("") + "…" : "";
}

/** Draw shapes on a canvas. */
export function paint(pen: CanvasRenderingContext2D, shapes: readonly Shape[]): void {
  for (const shape of shapes) {
    if (shape.text === undefined) paintBox(pen, shape);
    else paintText(pen, shape);
  }
}

function paintBox(pen: CanvasRenderingContext2D, box: BoxShape): void {
  pen.beginPath();
  pen.roundRect(box.x, box.y, box.width, box.height, box.round ?? 0);
  if (box.fill) {
    pen.fillStyle = box.fill;
    pen.fill();
  }
  if (!box.stroke) return;
  pen.strokeStyle = box.stroke;
  pen.lineWidth = box.thick ?? 1;
  pen.stroke();
}

function paintText(pen: CanvasRenderingContext2D, shape: TextShape): void {
  pen.font = fontOf(shape);
  pen.fillStyle = shape.fill;
  pen.textAlign = shape.centred ? "center" : "left";
  pen.fillText(shape.text, shape.x, shape.y);
  if (!shape.underlined) return;
  const width = pen.measureText(shape.text).width;
  pen.fillRect(shape.centred ? shape.x - width / 2 : shape.x, shape.y + 2, width, 1.5);
}

/** Draw shapes into SVG. */
export function drawShapes(sheet: Sheet, shapes: readonly Shape[]): void {
  for (const shape of shapes) {
    if (shape.text === undefined) {
      const { x, y, width, height, stroke, thick } = shape;
      const look = { fill: shape.fill ?? "none", stroke, "stroke-width": thick, rx: shape.round };
      add(sheet.node, "rect", { x, y, width, height, ...look });
    } else addText(sheet, shape);
  }
}

function addText(sheet: Sheet, shape: TextShape): void {
  const { x, y, fill, size, bold, italic, centred, underlined } = shape;
  const look = {
    "font-size": size,
    "font-weight": bold ? "bold" : null,
    "font-style": italic ? "italic" : null,
    "text-anchor": centred ? "middle" : null,
    "text-decoration": underlined ? "underline" : null,
  };
  add(sheet.node, "text", { x, y, fill, ...look, "xml:space": "preserve" }, shape.text);
}
