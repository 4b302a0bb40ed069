import type { Component } from "../base/component.ts";
import { make, part } from "../base/dom.ts";
import { readJson } from "../base/json.ts";
import { headedTable, textRow } from "../base/table.ts";

/** Models and devices that an estimate may name, as pairs of title and name. */
export interface Choices {
  models: [string, string][];
  devices: [string, string][];
}

/** The estimate of both lanes in words (`inspector.handlers.estimates`), or why there is none. */
export type EstimateDocument =
  | { ok: false; error: string }
  | {
      ok: true;
      summary: string;
      head: string[];
      rows: string[][];
      published: string[];
      notes: string[];
    };

const DEVICE = "h100";

/** The number that a visitor typed; null for the default, which an empty field means. */
export function typedTokens(text: string): number | null {
  const value = Number(text);
  return text.trim() === "" || !Number.isFinite(value) ? null : value;
}

function offer(select: HTMLSelectElement, choices: [string, string][], first?: string): void {
  if (select.options.length) return;
  select.replaceChildren(...choices.map(([title, name]) => new Option(title, name)));
  if (first !== undefined) select.value = first;
}

function list(texts: string[]): HTMLElement {
  const out = make("ul");
  out.append(...texts.map((text) => make("li", "", text)));
  return out;
}

/** The folded part of the plan that tells what the race would be on another model and device. */
export class EstimatePart {
  private readonly fold: HTMLDetailsElement;
  private readonly result: HTMLElement;
  private query = "";
  /** What the shown estimate was asked for; empty if none is shown. */
  private shown = "";
  private asked = 0;

  constructor(private readonly component: Component) {
    const { element } = component;
    this.fold = part<HTMLDetailsElement>(element, "[data-estimate]");
    this.result = part(element, "[data-estimate-result]");
    this.fold.addEventListener("toggle", () => void this.update());
    for (const name of ["model", "device", "tokens"]) {
      this.field(name).addEventListener("change", () => void this.update());
    }
  }

  private field(name: string): HTMLSelectElement | HTMLInputElement {
    return part(this.component.element, `[data-estimate-${name}]`);
  }

  /** Take the settings of a new plan. */
  take(query: string, choices: Choices): void {
    this.query = query;
    offer(this.field("model") as HTMLSelectElement, choices.models);
    offer(this.field("device") as HTMLSelectElement, choices.devices, DEVICE);
    void this.update();
  }

  /** Show nothing until the next plan. */
  clear(): void {
    this.query = this.shown = "";
    this.asked++;
    this.result.replaceChildren();
  }

  private async update(): Promise<void> {
    if (!this.fold.open || !this.query) return;
    const request = {
      query: this.query,
      model: this.field("model").value,
      device: this.field("device").value,
      tokens_per_forward: typedTokens(this.field("tokens").value),
    };
    const key = JSON.stringify(request);
    if (key === this.shown) return;
    this.shown = key;
    const turn = ++this.asked;
    this.result.replaceChildren(make("p", "", "Computing…"));
    let found: EstimateDocument | null = null;
    try {
      found = readJson(await this.component.server.estimate(request)) as EstimateDocument | null;
    } catch {
      this.shown = "";
    }
    if (turn === this.asked) this.show(found);
  }

  private show(found: EstimateDocument | null): void {
    if (!found?.ok) {
      const why = found?.error ?? "The server did not answer. Close this part and open it again.";
      const refusal = make("p", "ds-refusal", why);
      refusal.setAttribute("role", "alert");
      this.result.replaceChildren(refusal);
      return;
    }
    const table = headedTable(found.head, found.rows.map(textRow));
    const parts: HTMLElement[] = [make("p", "", found.summary), table];
    if (found.published.length) {
      parts.push(make("p", "", "The nearest published figures:"), list(found.published));
    }
    parts.push(make("p", "", "Assumptions:"), list(found.notes));
    this.result.replaceChildren(...parts);
  }
}
