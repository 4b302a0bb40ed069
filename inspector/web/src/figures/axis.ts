import { axisBottom, axisLeft, type AxisScale } from "d3-axis";
import { select } from "d3-selection";
import { MARGIN, namesClash, type AxisTick, type Box } from "./scales.ts";
import { add, layer, TEXT, type Sheet } from "./svg.ts";

/** An axis to draw. */
interface Axis {
  side: "x" | "y";
  scale: AxisScale<number>;
  ticks: readonly AxisTick[];
  /** Lines across the box at the ticks. */
  grid?: boolean;
}

/** Half the width of a letter, to keep the last label within the margin. */
const HALF_LETTER = 3.6;

/** Draw the labels of an axis along its side of a box, and its grid. */
export function drawAxis(sheet: Sheet, axis: Axis, box: Box): void {
  const { side, scale, ticks, grid } = axis;
  const across = side === "x" ? box.bottom - box.top : box.right - box.left;
  const made = (side === "x" ? axisBottom(scale) : axisLeft(scale))
    .tickValues(ticks.map((tick) => tick.at))
    .tickFormat((_, i) => ticks[i].text)
    .tickSizeOuter(0)
    .tickSizeInner(grid ? -across : 0)
    .tickPadding(5)
    .offset(0);
  const [x, y] = side === "x" ? [0, box.bottom] : [box.left, 0];
  const group = add(sheet.node, "g", { transform: `translate(${x} ${y})` });
  const drawn = select<SVGGElement, unknown>(group).call(made);
  drawn.attr("font-size", null).attr("font-family", null);
  drawn.select(".domain").remove();
  const texts = drawn.selectAll("text").attr("fill", sheet.inks.ink);
  if (side === "x") {
    const beyond = ticks.map(({ at, text }) => {
      return (scale(at) ?? 0) + text.length * HALF_LETTER - box.right - MARGIN.right;
    });
    texts.attr("dx", (_, i) => (beyond[i] > 0 ? -beyond[i] : null));
  }
  const lines = drawn.selectAll("line");
  if (grid) lines.attr("stroke", sheet.inks.rule).attr("shape-rendering", "crispEdges");
  else lines.remove();
}

/** Write the names of both axes below a box, on one line if they fit; `up`: y goes upwards. */
export function drawAxisNames(sheet: Sheet, x: string, y: string, up: boolean, box: Box): void {
  const names = layer(sheet, { "font-weight": "bold", fill: sheet.inks.ink, "font-size": TEXT });
  const base = box.bottom + MARGIN.bottom - 5;
  const lower = namesClash(box.right, x, y) ? base + 14 : base;
  if (x) add(names.node, "text", { x: box.right, y: base, "text-anchor": "end" }, x + " →");
  if (y) add(names.node, "text", { x: 2, y: lower }, y + (up ? " ↑" : " ↓"));
}
