import { csv, save } from "../base/download.ts";
import { make, write } from "../base/dom.ts";
import { paperFigure, pngBlob, svgText, WIDTHS } from "./export.ts";
import { inks } from "./inks.ts";
import { legendItems, legendKeys } from "./legend.ts";
import { figureName, nextCell, nextStop, type Cell, type Stop } from "./reading.ts";
import { plotScale } from "./scales.ts";
import { cellAt, crowdedAt, HeatScreen, PlotScreen, type Shown } from "./screen.ts";
import type { FigureSpec, HeatSpec, PlotSpec } from "./spec.ts";
import { figureRows, fileStem } from "./table.ts";

type Screen = PlotScreen | HeatScreen;

/** A chart or heat map on the page with its caption, legend, readout and files. */
export class Figure {
  readonly root = make("figure", "ds-figure");
  /** What its titles begin with, for instance the lane and its method. */
  lead = "";
  private readonly caption = make("figcaption");
  private readonly holder = make("div", "ds-drawing");
  private readonly legend = make("ul", "ds-legend");
  private readonly readout = make("p", "ds-words");
  private readonly width = make("select", "ds-tool");
  private readonly hover = new OncePerFrame();
  private spec: FigureSpec | null = null;
  private screen: Screen | null = null;
  private shown: Shown | null = null;
  private legendKey = "";
  private cell: Cell | null = null;
  private stop: Stop | null = null;
  /** Whether the keyboard is reading, so that the place that it reads is marked. */
  private reading = false;

  constructor(readonly name: string) {
    this.root.dataset.figure = name;
    this.legend.setAttribute("aria-label", "Legend");
    this.readout.setAttribute("aria-live", "off");
    this.root.append(this.caption, this.holder, this.legend, this.readout, this.tools());
  }

  private tools(): HTMLElement {
    const row = make("p", "ds-tools");
    const takes = [
      ["PNG", "png", () => this.png()],
      ["SVG", "svg", () => this.svg()],
      ["CSV", "csv", () => this.csv()],
    ] as const;
    for (const width of WIDTHS) this.width.append(new Option(`${width} px`, String(width)));
    this.width.value = "900";
    this.width.dataset.saveWidth = "";
    row.append(this.width);
    for (const [label, ending, take] of takes) {
      const key = make("button", "ds-tool", label);
      key.type = "button";
      key.dataset.save = ending;
      key.addEventListener("click", () => void take());
      row.append(key);
    }
    return row;
  }

  /** Draw what a view describes. */
  show(given: FigureSpec): void {
    const spec = { ...given, title: this.lead + given.title };
    this.spec = spec;
    write(this.caption, spec.title);
    const node = this.drawingFor(spec);
    node.setAttribute("aria-roledescription", spec.series ? "chart" : "heat map");
    node.setAttribute("aria-label", figureName(spec));
    for (const key of this.root.querySelectorAll<HTMLElement>("[data-save]")) {
      key.setAttribute("aria-label", "Save as " + (key.textContent || "") + ": " + spec.title);
    }
    this.width.setAttribute("aria-label", "Width of the saved figure: " + spec.title);
    this.draw();
  }

  /** The element that has the focus and is pointed at; it is made when a kind is shown first. */
  private drawingFor(spec: FigureSpec): HTMLElement | SVGSVGElement {
    const kind = spec.series ? PlotScreen : HeatScreen;
    if (!(this.screen instanceof kind)) {
      this.screen = new kind();
      const drawing = this.screen instanceof PlotScreen ? this.screen.svg : this.screen.root;
      this.holder.replaceChildren(drawing);
      this.listen(this.target(this.screen));
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
    on("pointermove", (event) => this.hover.run(() => this.point(event, false)));
    on("click", (event) => {
      this.hover.cancel();
      this.point(event, true);
    });
    node.addEventListener("pointerleave", () => {
      this.hover.cancel();
      this.say("", false);
      this.spec?.leave?.();
    });
    node.addEventListener("keydown", (event) => event instanceof KeyboardEvent && this.key(event));
    node.addEventListener("blur", () => this.mark(false));
  }

  private draw(): void {
    const { spec, screen } = this;
    if (!spec || !screen) return;
    if (spec.series && screen instanceof PlotScreen) {
      this.shown = screen.draw(spec, this.reading ? this.stop : null);
    } else if (!spec.series && screen instanceof HeatScreen) {
      this.shown = screen.draw(spec, spec.at ?? (this.reading ? this.cell : null));
    }
    if (this.shown) this.drawLegend(spec, this.shown);
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
    const cell = cellAt(spec, shown.box, px, py);
    if (cell) this.choose(spec, cell, pin, pin);
    else this.say("", false);
  }

  private pointPlot(spec: PlotSpec, { box }: Shown, [px, py]: Stop, pin: boolean): void {
    if (px < box.left || px > box.right) return this.say("", false);
    const x = plotScale(spec.x, box.left, box.right).invert(px);
    const y = plotScale(spec.y, box.bottom, box.top).invert(py);
    this.say(spec.words ? spec.words(x, y) : "", pin);
    spec.pick?.(x, y, pin);
  }

  private choose(spec: HeatSpec, cell: Cell, pin: boolean, aloud: boolean): void {
    this.cell = cell;
    this.say(spec.words(cell.x, cell.y), aloud);
    spec.pick?.(cell.x, cell.y, pin);
  }

  /** Write the readout. Screen readers say it only if it is meant to be said aloud. */
  private say(text: string, aloud: boolean): void {
    this.readout.setAttribute("aria-live", aloud ? "polite" : "off");
    if (aloud) this.readout.textContent = text;
    else write(this.readout, text);
  }

  /** Mark the place that the keyboard reads, or no longer. */
  private mark(reading: boolean): void {
    if (this.reading === reading && !reading) return;
    this.reading = reading;
    this.draw();
  }

  private key(event: KeyboardEvent): void {
    const { spec } = this;
    if (!spec || !(spec.series ? this.readPlot(spec, event) : this.readHeat(spec, event))) return;
    event.preventDefault();
    event.stopPropagation();
    this.mark(true);
  }

  private readPlot(spec: PlotSpec, { key, shiftKey }: KeyboardEvent): boolean {
    const stop = nextStop(spec, this.stop, key, shiftKey);
    if (!stop) return false;
    this.stop = stop;
    this.say(spec.words?.(...stop) ?? "", true);
    spec.pick?.(...stop, true);
    return true;
  }

  private readHeat(spec: HeatSpec, { key, shiftKey }: KeyboardEvent): boolean {
    const cell = nextCell(spec, this.cell, key, shiftKey);
    if (cell) this.choose(spec, cell, true, true);
    return cell !== null;
  }

  private file(ending: string): string {
    return fileStem(this.name, this.spec?.about) + "." + ending;
  }

  private paper(spec: FigureSpec): SVGSVGElement {
    return paperFigure(spec, Number(this.width.value), inks(this.root));
  }

  private async png(): Promise<void> {
    if (this.spec) save(this.file("png"), await pngBlob(this.paper(this.spec)));
  }

  private svg(): void {
    if (!this.spec) return;
    save(this.file("svg"), new Blob([svgText(this.paper(this.spec))], { type: "image/svg+xml" }));
  }

  private csv(): void {
    if (!this.spec) return;
    save(this.file("csv"), new Blob([csv(figureRows(this.spec))], { type: "text/csv" }));
  }
}

/** Runs the first task of a frame at once and only the last of the others, at the next frame. */
class OncePerFrame {
  private frame: number | null = null;
  private waiting: (() => void) | null = null;

  run(task: () => void): void {
    if (this.frame !== null) {
      this.waiting = task;
      return;
    }
    this.frame = requestAnimationFrame(() => {
      const { waiting } = this;
      this.frame = this.waiting = null;
      if (waiting) this.run(waiting);
    });
    task();
  }

  /** Forget the task that waits. */
  cancel(): void {
    this.waiting = null;
  }
}
