/** What a figure shows. A view describes it; `Figure` draws it. */
import type { Rgb } from "../base/colours.ts";
import type { Several } from "./cells.ts";

/** The numbers at both ends of a colour scale; a logarithmic one begins above 0. */
export interface ValueRange {
  from: number;
  to: number;
  log: boolean;
}

/** A legend with a colour ramp; `ticks` and `marks` are places from 0 to 1. */
export interface ScaleLegend {
  kind: "scale";
  name: string;
  /** The range of the plain values that the ramp shows, if the reader may change it. */
  range?: ValueRange;
  /** A plain value as text. */
  text?: (value: number) => string;
  colour: (place: number) => Rgb;
  ticks: readonly (readonly [number, string])[];
  marks?: readonly number[];
  items?: readonly LegendItem[];
}

/** A legend entry: colour, text, glyph, and the edge that marks its cells. */
export type LegendItem = readonly [
  colour: Rgb,
  text: string,
  glyph?: string,
  edge?: "over" | "under",
];

/** The legend of a heat map. */
export type Legend = ScaleLegend | { kind?: undefined; items: readonly LegendItem[] };

/** An axis of a heat map, with `count` cells. */
export interface CellAxis {
  name: string;
  count: number;
  /** The label of a cell; its number from 1 by default. */
  tick?: (cell: number) => string;
  /** Places, in cells, and labels of the ticks; evenly spaced by default. */
  ticks?: readonly (readonly [number, string])[];
  /** Lines before a cell, in a colour of their own or in that of the grid. */
  marks?: readonly { at: number; strong?: boolean; colour?: string }[];
  /** The axis goes upwards. */
  up?: boolean;
}

/** What a figure is about, for the names of its files. Views leave run and lane to their panel. */
export interface About {
  /** The run's id; its first eight characters are used. */
  run?: string;
  lane?: string;
  /** Counted from 0. */
  layer?: number;
  quantity?: string;
}

/** A range of the cells of an axis, `factor` of which are joined to one, but maybe the last ones. */
export interface Joined {
  from: number;
  to: number;
  factor: number;
}

/** Which cells of a heat map are known, and how many are joined. */
export interface CellBlocks {
  x: Joined;
  y: Joined;
}

/** The cells of a heat map as small whole numbers, its codes. */
export interface CellCodes {
  /** By rows, the code of each cell, which is its value, or of each block of joined cells. */
  codes: Uint8Array | Uint16Array;
  /** The colour of each code; null, or no entry: no data. */
  palette: readonly (Rgb | null)[];
  /** The numbers that codes stand for, rising, of which a mean is taken; else that of the codes. */
  numbers?: ArrayLike<number>;
}

/** What charts and heat maps have in common. Places are in units of the axes. */
interface BaseSpec {
  title: string;
  /** Height in CSS pixels. */
  height?: number;
  /** Left margin in CSS pixels. */
  left?: number;
  /** A square of at most this many CSS pixels. */
  square?: number;
  /** A place was pointed at, or chosen if `pin`. */
  pick?: (x: number, y: number, pin: boolean) => void;
  about?: About;
}

/** The column, the row and the value of a cell. */
export type CellPoint = readonly [x: number, y: number, value: number];

/** A heat map. `value` is null for a cell without data. */
export interface HeatSpec extends BaseSpec {
  series?: undefined;
  /** Changes whenever a cell's value or colour changes. */
  key: string;
  x: CellAxis;
  y: CellAxis;
  value: (x: number, y: number) => number | null;
  colour: (value: number) => Rgb;
  /** The same cells as codes, which are drawn much faster; called when `key` has changed. */
  cells?: () => CellCodes;
  /** Which cells `cells` gives, if not all, or not one by one. */
  blocks?: CellBlocks;
  /** What the value of joined cells is, for the CSV file, if it is not what `several` says. */
  joined?: string;
  /** The only cells with data, if they are few: their columns, rows and values. */
  points?: readonly CellPoint[];
  /**
   * What a screen pixel shows that holds several cells: by default the largest, or the first in the
   * legend if the legend has no scale, that is the smallest.
   */
  several?: Several;
  /** The colour of cells without data; they are hatched by default. */
  ground?: string;
  glyph?: (value: number) => string;
  legend?: Legend;
  /** The name of the value column of the CSV file. */
  unit?: string;
  /** The value as it stands in the CSV file. */
  plain?: (value: number) => number | string;
  /** Another column of the CSV file. */
  column?: { name: string; text: (x: number, y: number) => string | null };
  /** The meaning of a cell without data. */
  blank?: string;
  words: (x: number, y: number) => string;
  /** The chosen cell; null on one axis marks a whole row or column. */
  at?: { x: number | null; y: number | null };
  /** Cells with a dot. */
  dots?: readonly (readonly [number, number])[];
  dotName?: string;
  /** Cells with a line along their upper or lower edge. */
  over?: (x: number, y: number) => boolean;
  under?: (x: number, y: number) => boolean;
  underName?: string;
}

/** An axis of a chart. */
export interface PlotAxis {
  name: string;
  from: number;
  to: number;
  log?: boolean;
  /** Only whole numbers have ticks. */
  whole?: boolean;
  tick?: (value: number) => string;
}

/** A line, steps, points or bars. A y that is null or NaN leaves a gap. */
export interface Series {
  /** Empty: not in the legend. */
  name: string;
  /** Its name in the table of the figure's numbers, null to leave it out; by default `name`. */
  table?: string | null;
  colour: string;
  kind?: "line" | "step" | "points" | "bars";
  xs: readonly number[];
  ys: readonly (number | null)[];
  dash?: readonly number[];
  /** Line width in CSS pixels. */
  width?: number;
  /** Radius of points in CSS pixels. */
  size?: number;
  /** Opacity; 1 by default. */
  alpha?: number;
  mark?: "cross";
  /** The lower end of each bar; 0 by default. */
  base?: readonly number[];
  /** The right end of each bar, which then starts at its x. */
  ends?: readonly number[];
  /** What the first of these bars begins at in the table; a log axis cannot show 0. */
  least?: number;
  /** Width of the bars in units of x. */
  wide?: number;
}

/** A line across the chart at one x or y. */
export interface Rule {
  x?: number;
  y?: number;
  colour?: string;
  dash?: readonly number[];
  text?: string;
}

/** A text beside a point. */
export interface Label {
  x: number;
  y: number;
  text: string;
  colour: string;
}

/** A chart. */
export interface PlotSpec extends BaseSpec {
  x: PlotAxis;
  y: PlotAxis;
  series: readonly Series[];
  rules?: readonly Rule[];
  labels?: readonly Label[];
  /** The x of the cursor. */
  at?: number | null;
  words?: (x: number, y: number) => string;
}

export type FigureSpec = HeatSpec | PlotSpec;
