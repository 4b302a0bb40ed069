/** The controls of a heat map: zoom, and the range of its colours. */
import { make, write } from "../base/dom.ts";
import { rangeFault, rangeLegend } from "./range.ts";
import type { HeatSpec, ValueRange } from "./spec.ts";

/** What the controls do. */
export interface HeatActions {
  /** Show `factor` times as many cells. */
  zoom: (factor: number) => void;
  /** Show all cells. */
  reset: () => void;
  /** Set the range of the colours; null: that of the view. */
  range: (range: ValueRange | null) => void;
}

/** How much a key or a button zooms. */
export const ZOOM_STEP = 1.5;

/** Buttons to zoom, and a row in which the colours' range is set. */
export class HeatTools {
  /** The buttons. */
  readonly keys = make("span", "ds-zoom");
  /** The range's row, which a button opens. */
  readonly row = make("div", "ds-range");
  private readonly reset: HTMLButtonElement;
  private readonly open: HTMLButtonElement;
  private readonly from = number("from");
  private readonly to = number("to");
  private readonly kind = make("select", "ds-tool");
  private readonly unit = make("span");
  private readonly fault = make("span", "ds-range-fault");
  private readonly undo = tool("Reset colours", "colours-reset");
  private set: ValueRange | null = null;

  constructor(private readonly actions: HeatActions) {
    const nearer = tool("+", "zoom-in");
    const farther = tool("−", "zoom-out");
    this.reset = tool("Reset zoom", "zoom-reset");
    this.open = tool("Colours", "colours");
    nearer.title = "Also Ctrl and the wheel, a drag, two fingers, or the key +";
    farther.title = "Also Ctrl and the wheel, two fingers, or the key −";
    nearer.addEventListener("click", () => actions.zoom(1 / ZOOM_STEP));
    farther.addEventListener("click", () => actions.zoom(ZOOM_STEP));
    this.reset.addEventListener("click", () => {
      actions.reset();
      nearer.focus();
    });
    this.open.addEventListener("click", () => {
      this.unfold(this.open.getAttribute("aria-expanded") !== "true");
    });
    this.undo.addEventListener("click", () => {
      actions.range(null);
      this.from.focus(); // the key disappears
    });
    this.keys.append(nearer, farther, this.reset, this.open);
    this.buildRow();
    this.unfold(false);
  }

  private buildRow(): void {
    this.kind.dataset.range = "kind";
    this.kind.append(new Option("logarithmic", "log"), new Option("linear", "linear"));
    this.fault.setAttribute("role", "alert");
    this.row.setAttribute("role", "group");
    this.row.append("Colours from ", this.from, " to ", this.to, " ", this.unit, " ");
    this.row.append(this.kind, this.undo, this.fault);
    for (const input of [this.from, this.to, this.kind]) {
      input.addEventListener("change", () => this.read());
    }
  }

  private unfold(open: boolean): void {
    this.row.hidden = !open;
    this.open.setAttribute("aria-expanded", String(open));
  }

  private read(): void {
    const range = {
      from: this.from.value.trim() === "" ? NaN : Number(this.from.value),
      to: this.to.value.trim() === "" ? NaN : Number(this.to.value),
      log: this.kind.value === "log",
    };
    const fault = rangeFault(range);
    write(this.fault, fault);
    for (const input of [this.from, this.to])
      input.setAttribute("aria-invalid", String(fault !== ""));
    if (!fault) this.actions.range(range);
  }

  /**
   * Show the state of a heat map with its own range: the shown part in words, empty for all cells,
   * and the range that the reader has set.
   */
  show(spec: HeatSpec, part: string, range: ValueRange | null): void {
    this.reset.hidden = !part;
    this.reset.title = part + ". Also the key 0";
    for (const key of this.keys.querySelectorAll("button")) {
      const does = NAMES[key.dataset.tool ?? ""];
      key.setAttribute("aria-label", `${does}: ${spec.title}`);
    }
    const legend = rangeLegend(spec);
    this.open.hidden = !legend;
    if (!legend) {
      this.unfold(false);
      return;
    }
    this.row.setAttribute("aria-label", "Range of the colours: " + spec.title);
    write(this.unit, spec.unit ?? "");
    this.kind.hidden = !legend.range.log;
    this.kind.setAttribute("aria-label", "Scale of the colours");
    this.undo.hidden = !range;
    this.fill(range ?? legend.range);
  }

  /** Write a range into the fields unless it is the one that was written last. */
  private fill(range: ValueRange): void {
    if (JSON.stringify(range) === JSON.stringify(this.set)) return;
    this.set = range;
    this.from.value = String(range.from);
    this.to.value = String(range.to);
    this.kind.value = range.log ? "log" : "linear";
    write(this.fault, "");
    for (const input of [this.from, this.to]) input.setAttribute("aria-invalid", "false");
  }
}

const NAMES: Readonly<Record<string, string>> = {
  "zoom-in": "Zoom in",
  "zoom-out": "Zoom out",
  "zoom-reset": "Reset zoom",
  colours: "Range of the colours",
};

function tool(text: string, name: string): HTMLButtonElement {
  const key = make("button", "ds-tool", text);
  key.type = "button";
  key.dataset.tool = name;
  return key;
}

function number(end: "from" | "to"): HTMLInputElement {
  const input = make("input", "ds-tool");
  input.inputMode = "decimal";
  input.size = 8;
  input.dataset.range = end;
  input.setAttribute("aria-label", `Colours ${end}`);
  return input;
}
