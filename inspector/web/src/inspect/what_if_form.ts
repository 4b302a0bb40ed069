/** The form of a what-if: the rule, its knobs and the temperature. */
import { make, write } from "../base/dom.ts";
import {
  knobLabel,
  sliderRange,
  withRule,
  withSetting,
  type KnobValue,
  type WhatIfData,
  type WhatIfKnob,
} from "./what_if.ts";

/** What the form needs: the settings now, and what changes them. */
export interface FormActions {
  settings: () => string;
  change: (settings: string) => void;
}

type Input = HTMLInputElement | HTMLSelectElement;

/** A text of what the run has in place of a value. */
function runWords({ run }: WhatIfKnob): string {
  if (run === null) return "";
  return "run: " + (typeof run === "boolean" ? (run ? "on" : "off") : String(run));
}

/** The form, which is built anew for another rule and filled with each answer. */
export class WhatIfForm {
  private built = "";
  private readonly inputs = new Map<string, Input[]>();
  private data: WhatIfData | null = null;

  constructor(
    private readonly root: HTMLElement,
    private readonly actions: FormActions,
  ) {}

  /** Show the settings of an answer of the run `key`. */
  draw(data: WhatIfData, key: string): void {
    this.data = data;
    const built = [key, data.rule, data.run_rule].join();
    if (this.built !== built) this.build(data);
    this.built = built;
    for (const knob of [...data.knobs, data.temperature]) this.fill(knob);
  }

  private build(data: WhatIfData): void {
    const held = (document.activeElement as HTMLElement | null)?.dataset.knob;
    this.inputs.clear();
    const rows = [this.ruleList(data)];
    for (const knob of data.knobs) {
      const row = this.row(knob, data.rule);
      if (row) rows.push(row);
    }
    const heat = this.row(data.temperature, "");
    if (heat) rows.push(heat);
    this.root.replaceChildren(...rows);
    if (held === "unmasker") this.inputs.get(held)?.[0].focus();
  }

  private ruleList({ rules, rule, run_rule }: WhatIfData): HTMLElement {
    const list = make("select");
    list.append(
      ...rules.map(({ name, title }) => {
        const mark = name === run_rule ? title + " (this run)" : title;
        return new Option(mark, name, false, name === rule);
      }),
    );
    list.dataset.knob = "unmasker";
    list.addEventListener("change", () => {
      this.actions.change(withRule(this.actions.settings(), list.value, run_rule));
    });
    this.inputs.set("unmasker", [list]);
    return this.labelled("Unmasker", [list], "");
  }

  /** A row of a knob; null for one that has neither a range nor choices. */
  private row(knob: WhatIfKnob, rule: string): HTMLElement | null {
    const inputs = this.inputsOf(knob);
    if (!inputs.length) return null;
    for (const input of inputs) {
      input.dataset.knob = knob.name;
      input.title = knob.help;
      input.addEventListener("input", () => this.take(knob.name, rule, input));
    }
    this.inputs.set(knob.name, inputs);
    return this.labelled(knobLabel(knob), inputs, runWords(knob));
  }

  private inputsOf(knob: WhatIfKnob): Input[] {
    if (knob.choices.length) {
      const list = make("select");
      list.append(...knob.choices.map((choice) => new Option(choice, choice)));
      return [list];
    }
    if (knob.type === "bool") {
      const box = make("input");
      box.type = "checkbox";
      return [box];
    }
    if (knob.type !== "int" && knob.type !== "float") return [];
    const range = make("input");
    Object.assign(range, { type: "range", ...sliderRange(knob) });
    const field = make("input");
    Object.assign(field, { type: "number", min: knob.lo, max: knob.hi, required: true });
    field.step = knob.type === "int" ? "1" : "any";
    return [range, field];
  }

  private labelled(text: string, inputs: Input[], run: string): HTMLElement {
    const row = make("div", "ds-what-if-row");
    const name = make("span", "ds-what-if-name", text);
    inputs.forEach((input, i) => {
      input.setAttribute("aria-label", i ? text + ", as a number" : text);
    });
    row.append(name, ...inputs, make("span", "ds-room", run));
    return row;
  }

  private take(name: string, rule: string, input: Input): void {
    const knob = [...(this.data?.knobs ?? []), this.data?.temperature].find(
      (one) => one?.name === name,
    );
    const value = knob && valueOf(knob, input);
    if (!knob || value === null || value === undefined) return;
    for (const other of this.inputs.get(name) ?? []) if (other !== input) show(other, value);
    this.actions.change(withSetting(this.actions.settings(), knob, value, rule));
  }

  /** Show the value of a knob, unless the reader is at it. */
  private fill(knob: WhatIfKnob): void {
    const inputs = this.inputs.get(knob.name) ?? [];
    if (inputs.some((input) => input === document.activeElement)) return;
    for (const input of inputs) show(input, knob.value);
    const note = inputs[0]?.parentElement?.querySelector(".ds-room");
    if (note) write(note, runWords(knob));
  }

  /** Forget what the reader typed, so that the next answer fills every field. */
  reset(): void {
    this.built = "";
  }
}

function show(input: Input, value: KnobValue): void {
  if (input instanceof HTMLInputElement && input.type === "checkbox")
    input.checked = value === true;
  else if (input instanceof HTMLInputElement && input.type === "range") {
    input.value = String(value);
    input.setAttribute("aria-valuetext", String(value));
  } else input.value = String(value);
}

/** The value of an input; null if it is none that the knob may have. */
function valueOf(knob: WhatIfKnob, input: Input): KnobValue | null {
  if (input instanceof HTMLInputElement && input.type === "checkbox") return input.checked;
  if (knob.choices.length) return input.value;
  if (!input.checkValidity()) return null;
  const value = Number(input.value);
  if (knob.type === "int") return Math.round(value);
  return input.type === "range" ? Number(value.toPrecision(4)) : value; // a typed number is meant
}
