import type { Component } from "../base/component.ts";
import { part } from "../base/dom.ts";
import { readJson } from "../base/json.ts";

/** The presets of a model (`inspector.form.presets`): names and labels, and the chosen one. */
interface Presets {
  choices: [name: string, label: string][];
  chosen: string;
  info: string;
}

/** The list of presets in the settings. */
export class Preset {
  private readonly names: HTMLSelectElement;
  private readonly info: HTMLElement;

  constructor(private readonly component: Component) {
    this.names = part(component.element, "[data-preset-names]");
    this.info = part(component.element, "[data-preset-info]");
    this.names.addEventListener("change", () =>
      component.trigger("take", { preset: this.names.value }),
    );
    component.watch("value", () => this.show());
    this.show();
  }

  private show(): void {
    const found = readJson(this.component.props.value) as Presets | null;
    if (!found) return;
    this.info.textContent = found.info;
    const options = found.choices.map(([name, label]) => new Option(label, name));
    this.names.replaceChildren(new Option("–", ""), ...options);
    this.names.disabled = !found.choices.length;
    this.names.value = found.chosen;
  }
}

/** Start the list of presets in its component. */
export function preset(component: Component): Preset {
  return new Preset(component);
}
