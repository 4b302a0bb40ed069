import { make, write } from "../base/dom.ts";
import { READING, UNREAD } from "../base/unread.ts";
import { Figure } from "../figures/figure.ts";
import type { About, CellAxis } from "../figures/spec.ts";
import { termNodes } from "../page/glossary.ts";
import type { Lane } from "../race/lane.ts";
import { LANES, type LaneName } from "../race/messages.ts";
import type { Spot } from "./cursor.ts";
import type { Inspector } from "./inspector.ts";
import type { CellMap } from "./cell_map.ts";
import { readMap, type MapWish } from "./map_reading.ts";
import { documentOf, type Query, type Slice } from "./slice.ts";
import { isMissing, type Control, type Frame, type Missing, type View } from "./view.ts";

/** A view on the page: its text, its controls and its figures. */
export class Panel {
  readonly root = make("div", "ds-view");
  readonly figures: Record<string, Figure> = {};
  readonly controls = make("div", "ds-controls");
  private readonly note = make("p", "ds-note");
  private readonly body = make("div", "ds-view-body");
  private readonly values: Record<string, string | number> = {};
  /** Choices of lists whose options are not known yet. */
  private readonly wanted = new Map<string, string>();
  private readonly sides: Partial<Record<LaneName, Panel>> = {};
  /** The lane that it stands for; null for that of the cursor. */
  private only: LaneName | null = null;
  /** What the last drawing still waits for. */
  private lacking = 0;
  /** Whether the figures are those of the run. */
  private drawn = false;

  constructor(
    parent: HTMLElement,
    readonly name: string,
    private readonly view: View,
    readonly inspector: Inspector,
  ) {
    this.root.dataset.view = name;
    const about = make("p", "ds-about");
    const terms = new Set<string>();
    about.append(...termNodes(view.about, terms));
    if (view.branching) {
      const more = make("span");
      more.dataset.branching = "";
      more.append(" ", ...termNodes(view.branching, terms));
      about.append(more);
    }
    this.note.hidden = true;
    this.root.append(about, this.controls, this.note, this.body);
    parent.append(this.root);
    for (const control of view.controls ?? []) this.addControl(control);
    this.controls.hidden = !this.controls.childNodes.length;
  }

  /** The same panel with the cursor in a lane, which ends the names of its figures. */
  of(lane: LaneName): Panel {
    const known = this.sides[lane];
    if (known) return known;
    const side = Object.create(this) as Panel; // it shares the controls and the place on the page
    side.only = lane;
    this.sides[lane] = side;
    return side;
  }

  /** The cursor; a panel of another lane has it at the same step of the whole run. */
  get cursor(): Readonly<Spot> {
    const { now } = this.inspector.cursor;
    if (this.only === null || now.lane === this.only) return now;
    const { lanes } = this.inspector.store;
    const step = now.step + lanes[now.lane].before - lanes[this.only].before;
    return { ...now, lane: this.only, step: Math.max(step, 0) };
  }

  /** The lane of the cursor. */
  get lane(): Lane {
    return this.inspector.store.lanes[this.cursor.lane];
  }

  /** The frame of the cursor's lane. A view is drawn only once it is there. */
  get frame(): Frame {
    return this.inspector.frames[this.cursor.lane]!;
  }

  /** Step and layer of the cursor, within the run. */
  get spot(): { step: number; layer: number } {
    const { cursor, frame } = this;
    return {
      step: Math.min(cursor.step, frame.steps - 1),
      layer: Math.min(cursor.layer ?? 0, frame.layers - 1),
    };
  }

  /** The number of a step, from 1, counted with the steps before a branch. */
  number(step: number): number {
    return this.lane.stepNumber(step);
  }

  /** The chosen option of a list. */
  choice(name: string): string {
    return String(this.values[name]);
  }

  /** The value of a slider. */
  amount(name: string): number {
    return Number(this.values[name]);
  }

  private addControl(control: Control): void {
    if (control.kept) {
      this.values[control.name] = control.value;
      return;
    }
    const label = make("label", "", control.label + " ");
    const input = control.options ? make("select") : make("input");
    const shown = make("output");
    shown.ariaLive = "off";
    if (control.options)
      input.append(...control.options.map(([value, text]) => new Option(text, value)));
    else
      Object.assign(input, {
        type: "range",
        min: control.min,
        max: control.max,
        step: control.step,
      });
    input.value = String(control.value);
    input.dataset.control = control.name;
    input.setAttribute("aria-label", control.label);
    const read = (): void => {
      this.values[control.name] = control.options ? input.value : +input.value;
      if (control.options) return;
      shown.textContent = control.words(+input.value);
      input.setAttribute("aria-valuetext", shown.textContent);
    };
    input.addEventListener("input", () => {
      this.wanted.delete(control.name); // a later choice replaces one that still waits
      read();
      this.inspector.draw();
    });
    read();
    label.append(input, shown);
    this.controls.append(label);
  }

  private input(name: string): HTMLSelectElement | HTMLInputElement | null {
    return this.controls.querySelector('[data-control="' + name + '"]');
  }

  /** Replace the options of a list; an option that is gone is replaced by the first one. */
  choices(name: string, options: readonly (readonly [string, string])[]): void {
    const input = this.input(name)!;
    const key = JSON.stringify(options);
    if (input.dataset.key === key) return;
    input.dataset.key = key;
    input.replaceChildren(...options.map(([value, text]) => new Option(text, value)));
    const wanted = this.wanted.get(name);
    if (wanted !== undefined && options.some(([value]) => value === wanted)) {
      this.wanted.delete(name);
      this.values[name] = wanted;
    }
    const known = options.some(([value]) => value === this.values[name]);
    input.value = known ? this.choice(name) : options[0][0];
    this.values[name] = input.value;
  }

  /** The controls that are not as the view starts, with their values as texts. */
  changed(): [string, string][] {
    return (this.view.controls ?? [])
      .map(({ name, value }): [string, string, string] => [
        name,
        String(this.values[name]),
        String(value),
      ])
      .filter(([, value, start]) => value !== start)
      .map(([name, value]) => [name, value]);
  }

  /** Set controls; a list takes an option as soon as it has it. */
  restore(choices: readonly (readonly [string, string])[]): void {
    for (const [name, value] of choices) {
      const input = this.input(name);
      if (!input) {
        if (this.view.controls?.some((one) => one.kept && one.name === name)) this.set(name, value);
        continue;
      }
      const options = input instanceof HTMLSelectElement ? [...input.options] : null;
      if (options?.some((option) => option.value === value) ?? Number.isFinite(Number(value)))
        this.set(name, value);
      else if (options) this.wanted.set(name, value);
    }
  }

  /** Set a control. */
  set(name: string, value: string | number): void {
    this.values[name] = value;
    const input = this.input(name);
    if (input) input.value = String(value);
    if (input) input.dispatchEvent(new Event("input"));
    else this.inspector.draw();
  }

  /** What figures are about that do not say otherwise: the run and the cursor's lane. */
  private about(): About {
    return { run: this.inspector.store.run ?? undefined, lane: this.cursor.lane };
  }

  /**
   * The figure of a name; it is added when it is asked for first. Its titles begin with the lanes
   * that it shows, with their methods: that of the cursor unless others are given.
   */
  figure(plainName: string, lanes: readonly LaneName[] = [this.cursor.lane]): Figure {
    const name = this.only === null ? plainName : `${plainName}-${this.only}`;
    this.place(name);
    const shown = this.inspector.store.started.filter((lane) => lanes.includes(lane.name));
    const named = shown.map((lane) => `${lane.name.toUpperCase()}: ${lane.start.title}`);
    this.figures[name].lead = named.length ? named.join(" / ") + " · " : "";
    return this.figures[name];
  }

  /** Give a figure its place after those that are there already. */
  place(name: string): void {
    if (name in this.figures) return;
    this.figures[name] = new Figure(name, () => this.about(), {
      zoom: () => this.inspector.draw(),
      leave: () => this.pick(null, false),
    });
    this.body.append(this.figures[name].root);
  }

  /** A figure that shows both lanes. */
  bothFigure(name: string): Figure {
    return this.figure(name, LANES);
  }

  /** Hide all figures but those of some names. */
  showFigures(names: readonly string[]): void {
    for (const [name, figure] of Object.entries(this.figures))
      figure.root.hidden = !names.includes(name);
  }

  /** The block of a name; it is added when it is asked for first. */
  block<K extends keyof HTMLElementTagNameMap>(
    name: string,
    tag: K,
    style = "",
  ): HTMLElementTagNameMap[K] {
    const found = this.body.querySelector<HTMLElementTagNameMap[K]>(
      ':scope > [data-block="' + name + '"]',
    );
    if (found) return found;
    const node = make(tag, style);
    node.dataset.block = name;
    this.body.append(node);
    return node;
  }

  /** Show a sentence in place of the view; an empty one shows the view. */
  say(text: string): void {
    this.note.hidden = !text;
    write(this.note, text);
    this.body.hidden = Boolean(text);
  }

  /** Wait for the view's principal data; a view that was drawn stays meanwhile. */
  await(): void {
    this.lacking = 1;
    this.root.ariaBusy = "true";
    if (!this.drawn) this.say(READING);
  }

  /** Whether the last drawing has all its data. */
  get complete(): boolean {
    return this.lacking === 0;
  }

  /** A slice of a lane, by default that of the cursor; undefined while it is on its way. */
  slice(query: Query, lane = this.cursor.lane): Slice | Missing | undefined {
    const found = this.inspector.slices.get(lane, query);
    if (found === undefined) this.base.lacking++;
    return found;
  }

  /** A slice as a document; null if it is on its way, or missing. */
  part<Data extends object>(query: Query, lane = this.cursor.lane): Data | null {
    const found = this.slice(query, lane);
    return found && !isMissing(found) ? documentOf<Data>(found) : null;
  }

  /** A slice as a document; words in its place if it is on its way, or missing. */
  partOrWords<Data extends object>(query: Query): Data | string {
    const found = this.slice(query);
    if (!found) return UNREAD;
    return isMissing(found) ? found.missing : documentOf<Data>(found);
  }

  /**
   * The documents of slices that figures show; null if one is on its way, or missing, which the
   * figures say.
   */
  parts<All extends Record<string, object>>(
    figures: Figure | readonly Figure[],
    queries: { readonly [Name in keyof All]: Query },
    lane = this.cursor.lane,
  ): All | null {
    const wait = (reason: string | null): null => {
      for (const figure of [figures].flat()) figure.wait(reason);
      return null;
    };
    const found: Record<string, object> = {};
    let waits = false;
    for (const [name, query] of Object.entries<Query>(queries)) {
      const slice = this.slice(query, lane);
      if (!slice) waits = true;
      else if (isMissing(slice)) return wait(slice.missing);
      else found[name] = documentOf(slice);
    }
    return waits ? wait(null) : (found as All);
  }

  /** The cells of a heat map; null if they are on their way, or missing, which the figure says. */
  map(wish: MapWish, figure = this.figure(wish.figure)): CellMap | null {
    return readMap(this, figure, wish);
  }

  /** Ask for a slice that the reader may want next, once nothing else is on its way. */
  ahead(query: Query): void {
    if (this.complete) this.inspector.slices.ahead(this.cursor.lane, query);
  }

  /** The panel itself, of which those of the lanes are made. */
  private get base(): Panel {
    return this.only === null ? this : (Object.getPrototypeOf(this) as Panel);
  }

  /** Move the cursor, or preview a place; null ends the preview. */
  pick(place: Partial<Spot> | null, pin: boolean): void {
    const { cursor } = this.inspector;
    const whole = place && this.only !== null ? { lane: this.only, ...place } : place;
    if (pin && whole) cursor.move(whole, true);
    else cursor.hover(whole);
  }

  /** Forget the figures and sentences: the run, or the version of it, is another one. */
  forget(): void {
    this.drawn = false;
    for (const figure of Object.values(this.figures)) figure.forget();
    for (const said of this.body.querySelectorAll("p[data-block]")) said.textContent = "";
  }

  /** Draw the view. */
  draw(data: unknown): void {
    this.lacking = 0;
    this.say("");
    this.drawn = true;
    this.view.draw(this, data);
    this.root.ariaBusy = String(!this.complete);
  }

  /** The text of a position before a step. */
  text(position: number, step: number): string {
    return this.inspector.tokenText(this.cursor.lane, position, step);
  }

  /** An axis of all positions, with lines at the images and at the blocks. */
  positions(): CellAxis {
    const { frame } = this;
    const marks: { at: number; strong?: boolean }[] = [{ at: frame.prompt, strong: true }];
    for (const { first, rows } of this.lane.images) marks.push({ at: first }, { at: first + rows });
    const first = frame.prompt - (frame.shared ?? 0) + frame.block;
    for (let low = first; low < frame.positions; low += frame.block) marks.push({ at: low });
    return { name: "position", count: frame.positions, marks };
  }

  /** An axis of the answer's positions, with lines at the blocks. */
  answers(): CellAxis {
    const { frame } = this;
    const count = frame.positions - frame.prompt;
    const marks: { at: number }[] = [];
    const first = frame.block - (frame.shared ?? 0);
    for (let low = first; low < count; low += frame.block) marks.push({ at: low });
    return { name: "answer token", count, marks };
  }

  /** An axis of steps. */
  stepCells(): CellAxis {
    return { name: "step", count: this.frame.steps, tick: (step) => String(this.number(step)) };
  }

  /** An axis of steps, with lines where a block begins. */
  steps(): CellAxis {
    const { frame } = this;
    const blocks = frame.blocks.values;
    const marks: { at: number }[] = [];
    for (let s = 1; s < frame.steps; s++) if (blocks[s] !== blocks[s - 1]) marks.push({ at: s });
    return { ...this.stepCells(), marks };
  }
}
