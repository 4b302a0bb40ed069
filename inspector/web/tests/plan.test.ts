import assert from "node:assert/strict";
import test from "node:test";
import type { Component } from "../src/base/component.ts";
import { Plan } from "../src/page/plan.ts";

/** A node of the plan that counts how often its text is written. */
class Part {
  hidden = false;
  disabled = false;
  value = "";
  written = 0;
  private text = "";
  private readonly parts: Partial<Record<string, Part>> = {};
  readonly addEventListener = (): undefined => undefined;
  readonly before = this.addEventListener;
  readonly replaceChildren = this.addEventListener;

  get textContent(): string {
    return this.text;
  }

  set textContent(text: string) {
    this.text = text;
    this.written++;
  }

  querySelector(selector: string): Part {
    return (this.parts[selector] ??= new Part());
  }
}

test("a refusal that the next plan repeats is not written again", () => {
  const nothing = (): undefined => undefined;
  Object.assign(globalThis, {
    document: { addEventListener: nothing, dispatchEvent: nothing, createElement: () => ({}) },
    ResizeObserver: class {
      readonly observe = nothing;
    },
  });
  const element = new Part();
  let react: () => void = nothing;
  const component = {
    element,
    props: { value: JSON.stringify({ ok: false, error: "Prompt: it is too long." }) },
    watch: (_: string, told: () => void) => (react = told),
    trigger: nothing,
    server: {},
  };
  new Plan(component as unknown as Component);
  react();
  const refusal = element.querySelector("[data-error]");
  assert.equal(refusal.textContent, "Cannot run. Prompt: it is too long.");
  assert.equal(refusal.written, 1);
});
