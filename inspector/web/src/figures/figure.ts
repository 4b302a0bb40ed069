import { csv, save } from "../base/download.ts";
import { isShortcut, make, write } from "../base/dom.ts";
import { isWhole } from "./cells.ts";
import { attempt, paperFigure, pngBlob, svgText, WIDTHS } from "./export.ts";
import { OncePerFrame } from "./frames.ts";
import { Gestures } from "./gestures.ts";
import { HeatState } from "./heat_state.ts";
import { HeatTools, ZOOM_STEP } from "./heat_tools.ts";
import { inks } from "./inks.ts";
import { legendItems, legendKeys } from "./legend.ts";
import { figureName, nextCell, nextStop, type Cell, type Stop } from "./reading.ts";
import { plotScale, type Box } from "./scales.ts";
import { cellAt, crowdedAt, HeatScreen, PlotScreen, type Shown } from "./screen.ts";
import type { About, FigureSpec, HeatSpec, PlotSpec } from "./spec.ts";
import { figureRows, fileStem } from "./table.ts";
import { Waiting } from "./waiting.ts";
import { dragBox, type Zoom } from "./zoom.ts";

type Screen = PlotScreen | HeatScreen;

/** What a figure shows of a heat map. */
export interface Sight {
  /** The cells that are shown; null: all. */
  cells: Zoom | null;
  /** Its width and height in device pixels. */
  wide: number;
  high: number;
}

/** What the owner of a figure is called for. */
interface FigureEvents {
  /** Another part of a heat map is shown whose cells are not all known one by one. */
  zoom?: () => void;
  /** The pointer left. */
  leave?: () => void;
}

const DEFAULT_SIZE = { width: 900, height: 260 }; // of a figure that was not drawn yet

/** Keys that zoom, and how many times as many cells are then shown. */
const ZOOM_KEYS: Readonly<Partial<Record<string, number>>> = {
  "+": 1 / ZOOM_STEP,
  "=": 1 / ZOOM_STEP,
  "-": ZOOM_STEP,
  _: ZOOM_STEP,
};

/** A chart or heat map on the page with its caption, legend, readout and files. */
export class Figure {
  readonly root = make("figure", "ds-figure");
  /** What its titles begin with, for instance the lane and its method. */
  lead = "";
  private readonly caption = make("figcaption");
  private readonly holder = make("div", "ds-drawing");
  private readonly legend = make("ul", "ds-legend");
  private readonly readout = make("p", "ds-words");
  private readonly toolRow = make("p", "ds-tools");
  private readonly width = make("select", "ds-tool");
  private readonly hover = new OncePerFrame();
  private readonly redraw = new OncePerFrame();
  private readonly heatTools = new HeatTools({
    zoom: (factor) => this.zoomFrom(factor),
    reset: () => this.showAll(),
    range: (range) => this.changeHeat((state) => (state.range = range)),
  });
  private spec: FigureSpec | null = null;
  /** The part of a heat map that is shown, and its colours' range; null for a chart. */
  private state: HeatState | null = null;
  private gestures: Gestures | null = null;
  private screen: Screen | null = null;
  private shown: Shown | null = null;
  private legendKey = "";
  private cell: Cell | null = null;
  private stop: Stop | null = null;
  /** Whether the keyboard is reading, so that the place that it reads is marked. */
  private reading = false;
  /** The words of the place in the readout, which may change with the data. */
  private told: (() => string) | null = null;
  private readonly waiting = new Waiting(this.root, () => {
    return [this.holder, this.legend, this.toolRow, this.heatTools.row];
  });

  /** `about`: what the spec leaves open of what the figure is about. */
  constructor(
    readonly name: string,
    private readonly about: () => About = () => ({}),
    private readonly events: FigureEvents = {},
  ) {
    this.root.dataset.figure = name;
    this.legend.setAttribute("aria-label", "Legend");
    this.readout.setAttribute("aria-live", "off");
    this.fillTools();
    const { caption, holder, legend, readout, toolRow } = this;
    this.root.append(caption, this.waiting.note, holder, legend, readout, toolRow);
    this.root.append(this.heatTools.row);
  }

  private fillTools(): void {
    const takes = [
      ["PNG", "png", () => this.png()],
      ["SVG", "svg", () => this.svg()],
      ["CSV", "csv", () => this.csv()],
    ] as const;
    for (const width of WIDTHS) this.width.append(new Option(`${width} px`, String(width)));
    this.width.value = "900";
    this.width.dataset.saveWidth = "";
    this.toolRow.append(this.heatTools.keys, this.width);
    for (const [label, ending, take] of takes) {
      const key = make("button", "ds-tool", label);
      key.type = "button";
      key.dataset.save = ending;
      const fail = (): void => this.say(`The browser could not write the ${label} file.`, true);
      key.addEventListener("click", () => void attempt(take, fail));
      this.toolRow.append(key);
    }
  }

  /**
   * The data of the figure is on its way (null), or there is none, for a reason. The last picture
   * stays while data is on its way.
   */
  wait(reason: string | null): void {
    if (reason === null) return this.waiting.begin(this.spec !== null);
    this.forget();
    this.waiting.lack(reason);
  }

  /** Forget the picture, for instance of another run, its title and what was read of it. */
  forget(): void {
    this.spec = null;
    this.state?.forget();
    if (this.screen instanceof HeatScreen) this.screen.forget();
    write(this.caption, "");
    this.waiting.begin(false);
    this.say("", false);
  }

  /** What is shown, or will be, of a heat map with so many columns and rows. */
  sight(columns: number, rows: number, height: number = DEFAULT_SIZE.height): Sight {
    const dense = window.devicePixelRatio || 1;
    const box = this.shown?.box;
    const wide = box ? box.right - box.left : this.holder.clientWidth || DEFAULT_SIZE.width;
    const high = box ? box.bottom - box.top : height;
    const cells = this.state?.cellsOf(columns, rows) ?? null;
    return { cells, wide: Math.round(wide * dense), high: Math.round(high * dense) };
  }

  /** Draw what a view describes. */
  show(given: FigureSpec): void {
    const spec = { ...given, title: this.lead + given.title };
    this.spec = spec;
    this.takeHeat(spec);
    write(this.caption, spec.title);
    const node = this.drawingFor(spec);
    node.setAttribute("aria-roledescription", spec.series ? "chart" : "heat map");
    node.setAttribute("aria-label", figureName(spec));
    for (const key of this.root.querySelectorAll<HTMLElement>("[data-save]")) {
      key.setAttribute("aria-label", "Save as " + (key.textContent || "") + ": " + spec.title);
    }
    this.width.setAttribute("aria-label", "Width of the saved figure: " + spec.title);
    this.waiting.end();
    this.draw();
    if (this.told) write(this.readout, this.told());
  }

  private takeHeat(spec: FigureSpec): void {
    this.heatTools.keys.hidden = spec.series !== undefined;
    if (spec.series) {
      this.state = null;
      this.heatTools.row.hidden = true;
    } else if (this.state) this.state.take(spec);
    else this.state = new HeatState(spec);
  }

  /** What is drawn and saved: the spec, or the part of a heat map that is shown. */
  private get seen(): FigureSpec | null {
    return this.state?.seen ?? this.spec;
  }

  /** The element that has the focus and is pointed at; it is made when a kind is shown first. */
  private drawingFor(spec: FigureSpec): HTMLElement | SVGSVGElement {
    const kind = spec.series ? PlotScreen : HeatScreen;
    if (!(this.screen instanceof kind)) {
      this.screen = new kind();
      const drawing = this.screen instanceof PlotScreen ? this.screen.svg : this.screen.root;
      this.holder.replaceChildren(drawing);
      this.listen(this.target(this.screen));
      if (this.screen instanceof HeatScreen) this.listenForZoom(this.screen);
    }
    return this.target(this.screen);
  }

  private target(screen: Screen): HTMLElement | SVGSVGElement {
    return screen instanceof PlotScreen ? screen.svg : screen.canvas;
  }

  private listen(node: HTMLElement | SVGSVGElement): void {
    node.setAttribute("tabindex", "0");
    node.setAttribute("role", "application");
    const on = (name: string, take: (event: MouseEvent) => void): void => {
      node.addEventListener(name, (event) => event instanceof MouseEvent && take(event));
    };
    on("pointermove", (event) => {
      if (!this.gestures?.busy) this.hover.run(() => this.point(event, false));
    });
    on("click", (event) => {
      this.hover.cancel();
      if (!this.gestures?.endsDrag()) this.point(event, true);
    });
    node.addEventListener("pointerleave", () => {
      this.hover.cancel();
      this.say("", false);
      this.events.leave?.();
    });
    node.addEventListener("keydown", (event) => event instanceof KeyboardEvent && this.key(event));
    node.addEventListener("blur", () => this.mark(false));
  }

  private listenForZoom(screen: HeatScreen): void {
    const box = (): Box | null => this.shown?.box ?? null;
    this.gestures = new Gestures(screen.canvas, {
      box,
      zoom: (factor, px, py) => {
        this.changeHeat((state, within) => state.zoomAt(within, factor, px, py));
      },
      move: (dx, dy) => this.changeHeat((state, within) => state.moveBy(within, dx, dy)),
      mark: (from, to, end) => {
        const within = box();
        if (!within) return;
        const area = dragBox(within, from, to);
        screen.mark(end ? null : area);
        if (end) this.changeHeat((state) => state.zoomInto(within, area));
      },
      unmark: () => screen.mark(null),
    });
  }

  /** Change what is shown of a heat map, or its range, and draw it once in a frame. */
  private changeHeat(change: (state: HeatState, box: Box) => void): void {
    const { state, shown } = this;
    if (!state || !shown) return;
    change(state, shown.box);
    this.hover.cancel();
    this.redraw.run(() => {
      this.draw();
      if (this.spec && !this.spec.series && !isWhole(this.spec)) this.events.zoom?.();
    });
  }

  private zoomFrom(factor: number): void {
    const at = this.spec?.series ? null : this.spec?.at;
    const cursor = at && at.x !== null && at.y !== null ? { x: at.x, y: at.y } : this.cell;
    this.changeHeat((state, box) => state.zoomBy(box, factor, state.around(cursor)));
    this.sayZoom();
  }

  private showAll(): void {
    this.changeHeat((state) => state.reset());
    this.sayZoom();
  }

  private sayZoom(): void {
    this.say(this.state?.words() || "All cells are shown", true);
  }

  private draw(): void {
    const { spec, screen, state, seen } = this;
    if (!spec || !screen || !seen) return;
    if (seen.series && screen instanceof PlotScreen) {
      this.shown = screen.draw(seen, this.reading ? this.stop : null);
    } else if (!seen.series && !spec.series && screen instanceof HeatScreen && state) {
      const at = seen.at ?? state.shownAt(this.reading ? this.cell : null);
      this.shown = screen.draw(seen, at);
      this.heatTools.show(spec, state.words(), state.range);
    }
    if (this.shown) this.drawLegend(seen, this.shown);
  }

  private drawLegend(spec: FigureSpec, shown: Shown): void {
    const keys = legendKeys(spec, !spec.series && crowdedAt(spec, shown));
    const series = spec.series?.map(({ name, colour, dash, kind, mark }) => {
      return [name, colour, dash, kind, mark];
    });
    const legend = spec.series ? null : spec.legend;
    const stamp = JSON.stringify([keys.map((key) => key.text), series, legend, shown.inks]);
    if (this.legendKey === stamp) return;
    this.legendKey = stamp;
    this.legend.replaceChildren(...legendItems(keys, shown.inks));
  }

  private point(event: MouseEvent, pin: boolean): void {
    const { spec, shown, screen } = this;
    if (!spec || !shown || !screen) return;
    const frame = this.target(screen).getBoundingClientRect();
    const [px, py] = [event.clientX - frame.left, event.clientY - frame.top];
    if (spec.series) return this.pointPlot(spec, shown, [px, py], pin);
    const { state } = this;
    const cell = state && cellAt(state.seen, shown.box, px, py);
    if (cell) this.choose(spec, state.wholeCell(cell), pin, pin);
    else this.say("", false);
  }

  private pointPlot(spec: PlotSpec, { box }: Shown, [px, py]: Stop, pin: boolean): void {
    if (px < box.left || px > box.right) return this.say("", false);
    const x = plotScale(spec.x, box.left, box.right).invert(px);
    const y = plotScale(spec.y, box.bottom, box.top).invert(py);
    this.tellPoint(spec, [x, y], pin);
    spec.pick?.(x, y, pin);
  }

  private choose(spec: HeatSpec, cell: Cell, pin: boolean, aloud: boolean): void {
    this.cell = cell;
    this.say(spec.words(cell.x, cell.y), aloud);
    this.told = () => this.cellWords(cell);
    spec.pick?.(cell.x, cell.y, pin);
  }

  private cellWords({ x, y }: Cell): string {
    const { spec } = this;
    if (!spec || spec.series || x >= spec.x.count || y >= spec.y.count) return "";
    return spec.words(x, y);
  }

  private tellPoint(spec: PlotSpec, [x, y]: Stop, aloud: boolean): void {
    this.say(spec.words?.(x, y) ?? "", aloud);
    this.told = () => (this.spec?.series && this.spec.words?.(x, y)) || "";
  }

  /** Write the readout. Screen readers say it only if it is meant to be said aloud. */
  private say(text: string, aloud: boolean): void {
    this.told = null;
    this.readout.setAttribute("aria-live", aloud ? "polite" : "off");
    if (aloud) this.readout.textContent = text;
    else write(this.readout, text);
  }

  /** Mark the place that the keyboard reads, or no longer. */
  private mark(reading: boolean): void {
    if (this.reading === reading && !reading) return;
    this.reading = reading;
    if (!reading) this.readout.setAttribute("aria-live", "off"); // the pointer may change its words
    this.draw();
  }

  private key(event: KeyboardEvent): void {
    const { spec } = this;
    if (!spec || isShortcut(event)) return;
    if (!(spec.series ? this.readPlot(spec, event) : this.readHeat(spec, event))) return;
    event.preventDefault();
    event.stopPropagation();
    this.mark(true);
  }

  private readPlot(spec: PlotSpec, { key, shiftKey }: KeyboardEvent): boolean {
    const stop = nextStop(spec, this.stop, key, shiftKey);
    if (!stop) return false;
    this.stop = stop;
    this.tellPoint(spec, stop, true);
    spec.pick?.(...stop, true);
    return true;
  }

  private readHeat(spec: HeatSpec, { key, shiftKey }: KeyboardEvent): boolean {
    const factor = ZOOM_KEYS[key];
    if (factor) this.zoomFrom(factor);
    else if (key === "0") this.showAll();
    else {
      const cell = nextCell(spec, this.cell, key, shiftKey);
      if (!cell) return false;
      this.state?.reveal(cell);
      this.choose(spec, cell, true, true);
    }
    return true;
  }

  private file(ending: string): string {
    return fileStem(this.name, { ...this.about(), ...this.spec?.about }) + "." + ending;
  }

  private paper(spec: FigureSpec): SVGSVGElement {
    return paperFigure(spec, Number(this.width.value), inks(this.root));
  }

  private async png(): Promise<void> {
    if (this.seen) save(this.file("png"), await pngBlob(this.paper(this.seen)));
  }

  private svg(): void {
    if (!this.seen) return;
    save(this.file("svg"), new Blob([svgText(this.paper(this.seen))], { type: "image/svg+xml" }));
  }

  private csv(): void {
    if (!this.seen) return;
    save(this.file("csv"), new Blob([csv(figureRows(this.seen))], { type: "text/csv" }));
  }
}
