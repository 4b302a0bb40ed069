/** The images of a prompt: where their rows are, in words and as folded strips above the tokens. */
import { isShortcut, make, onRecolour, part, write } from "../base/dom.ts";
import { number } from "../base/format.ts";
import type { ImageMessage } from "./messages.ts";

const SIDE = 27; // patches of a side of a crop
const PATCHES = SIDE * SIDE;
const CELL = 8; // CSS pixels of a patch

/** A part of an image's rows that is drawn as a grid: its name, size and first row. */
export interface Grid {
  name: string;
  columns: number;
  rows: number;
  /** Whether the last column holds the newlines. */
  newlines: boolean;
  first: number;
}

/** The grids of an image: the whole image and, unless it is padded to one crop, the map of tiles. */
export function gridsOf(image: ImageMessage): Grid[] {
  const whole = { name: "whole image", columns: SIDE, rows: SIDE, newlines: false, first: 0 };
  if (image.mode === "pad") return [whole];
  const [across, down] = image.map;
  const tiles = { name: "tiles", columns: across + 1, rows: down, newlines: true, first: PATCHES };
  return [whole, tiles];
}

/** What a position of the canvas shows, if it is a row of an image; null for any other. */
export function imagePlace(images: readonly ImageMessage[], position: number): string | null {
  for (const [index, image] of images.entries()) {
    const row = position - image.first;
    if (row < 0 || row >= image.rows) continue;
    return `image ${index + 1}, ${placeIn(image, row)}`;
  }
  return null;
}

function placeIn(image: ImageMessage, row: number): string {
  const grid = gridsOf(image).findLast(({ first }) => row >= first);
  if (!grid) return "";
  const inside = row - grid.first;
  const line = Math.floor(inside / grid.columns);
  const column = inside % grid.columns;
  if (line >= grid.rows) return "newline"; // of a padded image, after its only crop
  const where = `${grid.name}, row ${line + 1}`;
  if (grid.newlines && column === grid.columns - 1) return `${where}, newline`;
  return `${where}, column ${column + 1}`;
}

/** The line of a folded image. */
export function stripTitle(image: ImageMessage, index: number): string {
  const size = `${image.width} × ${image.height}`;
  const [across, down] = image.grid;
  const tiles = image.mode === "pad" ? "1 crop" : `1 + ${across} × ${down} crops`;
  return `Image ${index + 1} · ${size} · ${tiles} · ${number(image.rows)} rows of the prompt`;
}

type Pick = (position: number) => void;
/** Writes which patch is read; screen readers say it only if it is meant to be said aloud. */
type Say = (text: string, aloud: boolean) => void;

/** The images of a lane, each folded to a line with its tile; the grids are drawn when it opens. */
export class ImageStrips {
  private drawn: readonly ImageMessage[] | null = null;
  /** Each paints a tile or a grid. */
  private paints: (() => void)[] = [];

  constructor(
    private readonly box: HTMLElement,
    private readonly pick: Pick,
  ) {
    onRecolour(this.paint);
  }

  /** Paint in the colours of the theme, which only what is on the page has. */
  private readonly paint = (): void => {
    for (const own of this.paints) own();
  };

  /** Draw the images unless they are there already. */
  draw(images: readonly ImageMessage[]): void {
    if (images === this.drawn) return;
    this.drawn = images;
    this.paints = [];
    this.box.hidden = images.length === 0;
    this.box.replaceChildren(...images.map((image, index) => this.strip(image, index)));
    this.paint();
  }

  private strip(image: ImageMessage, index: number): HTMLElement {
    const root = make("details", "ds-strip");
    const head = make("summary");
    const tile = make("canvas", "ds-strip-tile");
    tile.setAttribute("aria-hidden", "true");
    head.append(tile, make("span", "", stripTitle(image, index)));
    const body = make("div", "ds-strip-body");
    root.append(head, body);
    // A padded image is one crop, whatever a file says of its map.
    const [columns, rows] = image.mode === "pad" ? [SIDE, SIDE] : image.map;
    const size = { columns, rows, scale: 1 };
    this.paints.push(() => paint(tile, size, this.picture(image.name)));
    root.addEventListener("toggle", () => {
      if (!root.open || body.childElementCount) return;
      body.append(...this.grids(image, index));
      this.paint();
    });
    return root;
  }

  private grids(image: ImageMessage, index: number): HTMLElement[] {
    const said = make("p", "ds-strip-said", "Point at a patch, or move to it with the arrow keys.");
    said.setAttribute("aria-live", "off");
    const say: Say = (text, aloud) => {
      said.setAttribute("aria-live", aloud ? "polite" : "off");
      if (aloud) said.textContent = text;
      else write(said, text);
    };
    const boxes = gridsOf(image).map((grid) => {
      const figure = make("figure", "ds-strip-grid");
      const board = new Board(image, index, grid, say, this.pick, () => this.picture(image.name));
      this.paints.push(() => board.paint());
      figure.append(make("figcaption", "", caption(grid)), board.canvas);
      return figure;
    });
    return [...boxes, said];
  }

  /**
   * The image as the page shows it beside the prompt; null if it is not there. One that has not
   * come yet is painted when it has.
   */
  private picture(name: string): HTMLImageElement | null {
    const image = shownImage(name);
    if (image && !image.complete) image.addEventListener("load", this.paint, { once: true });
    return image && isDecoded(image) ? image : null;
  }
}

function caption(grid: Grid): string {
  const columns = grid.newlines ? `${grid.columns - 1} patches and a newline` : `${grid.columns}`;
  return `${grid.name}: ${grid.rows} rows of ${columns}`;
}

/**
 * The patch that an arrow key leads to from the patch `at`, or from none (null); null for any other
 * key. Left and right follow the rows of the prompt, up and down stay in the column. A key that leads
 * out of the grid moves nothing.
 */
export function patchAfter(key: string, at: number | null, grid: Grid): number | null {
  const { columns, rows } = grid;
  const moves: Record<string, number | undefined> = {
    ArrowRight: 1,
    ArrowLeft: -1,
    ArrowDown: columns,
    ArrowUp: -columns,
  };
  const by = moves[key];
  if (by === undefined) return null;
  if (at === null) return 0;
  const next = at + by;
  return next >= 0 && next < columns * rows ? next : at;
}

/** A grid of patches that is read by pointer and arrow keys; a click or Enter picks the row. */
class Board {
  readonly canvas = make("canvas");
  private at: number | null = null;

  constructor(
    private readonly image: ImageMessage,
    index: number,
    private readonly grid: Grid,
    private readonly say: Say,
    private readonly pick: Pick,
    private readonly picture: () => HTMLImageElement | null,
  ) {
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute("role", "application");
    const label = `Image ${index + 1}, ${grid.name}; arrow keys move, Enter pins`;
    this.canvas.setAttribute("aria-label", label);
    this.canvas.addEventListener("pointermove", (event) => {
      const at = this.under(event);
      if (at !== this.at) this.move(at, false);
    });
    this.canvas.addEventListener("click", (event) => {
      this.move(this.under(event), true);
      this.pick(this.position);
    });
    this.canvas.addEventListener("keydown", (event) => this.key(event));
  }

  private get position(): number {
    return this.image.first + this.grid.first + (this.at ?? 0);
  }

  private under(event: MouseEvent): number {
    const box = this.canvas.getBoundingClientRect();
    const { columns, rows } = this.grid;
    const x = Math.floor(((event.clientX - box.left) / box.width) * columns);
    const y = Math.floor(((event.clientY - box.top) / box.height) * rows);
    const inside = (n: number, count: number): number => Math.min(Math.max(n, 0), count - 1);
    return inside(y, rows) * columns + inside(x, columns);
  }

  private key(event: KeyboardEvent): void {
    if (isShortcut(event)) return;
    const next = patchAfter(event.key, this.at, this.grid);
    if (next !== null) this.move(next, true);
    else if (event.key === "Enter") this.pick(this.position);
    else return;
    event.preventDefault();
  }

  private move(at: number, aloud: boolean): void {
    this.at = at;
    const row = this.position - this.image.first;
    this.say(`Position ${this.position + 1}: ${placeIn(this.image, row)}`, aloud);
    this.paint();
  }

  /** Paint the grid with the patch that is read. */
  paint(): void {
    const { columns, rows, newlines } = this.grid;
    const shown = newlines ? columns - 1 : columns;
    paint(this.canvas, { columns, rows, scale: CELL, shown, at: this.at }, this.picture());
  }
}

/** The element of an image beside the prompt; null if there is none. */
function shownImage(name: string): HTMLImageElement | null {
  const figures = document.querySelectorAll<HTMLElement>("#ds-image-shown [data-image]");
  const own = [...figures].find(({ dataset }) => dataset.image === name);
  return own ? part<HTMLImageElement>(own, "img") : null;
}

/** Whether an image can be drawn: it has come, and is not broken. */
export function isDecoded({ complete, naturalWidth }: HTMLImageElement): boolean {
  return complete && naturalWidth > 0;
}

interface Painting {
  columns: number;
  rows: number;
  /** Pixels of a patch. */
  scale: number;
  /** Columns that show the image; the others hold newlines. */
  shown?: number;
  /** The patch that is marked. */
  at?: number | null;
}

function paint(canvas: HTMLCanvasElement, of: Painting, image: HTMLImageElement | null): void {
  const { columns, rows, scale, shown = columns, at } = of;
  canvas.width = columns * scale;
  canvas.height = rows * scale;
  canvas.style.aspectRatio = `${columns} / ${rows}`;
  const context = canvas.getContext("2d");
  if (!context) return;
  const style = getComputedStyle(canvas);
  context.fillStyle = style.getPropertyValue("--ds-rule") || "#d5dbe3";
  context.fillRect(0, 0, canvas.width, canvas.height);
  if (image) context.drawImage(image, 0, 0, shown * scale, canvas.height);
  if (scale < 4) return;
  context.strokeStyle = style.getPropertyValue("--ds-card") || "#ffffff";
  context.globalAlpha = 0.55;
  context.beginPath();
  for (let x = 0; x <= columns; x++) {
    context.moveTo(x * scale, 0);
    context.lineTo(x * scale, canvas.height);
  }
  for (let y = 0; y <= rows; y++) {
    context.moveTo(0, y * scale);
    context.lineTo(canvas.width, y * scale);
  }
  context.stroke();
  context.globalAlpha = 1;
  if (at === undefined || at === null) return;
  context.strokeStyle = style.getPropertyValue("--ds-alert") || "#9a3400";
  context.lineWidth = 2;
  context.strokeRect(
    (at % columns) * scale + 1,
    Math.floor(at / columns) * scale + 1,
    scale - 2,
    scale - 2,
  );
}
