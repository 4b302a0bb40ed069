/** The controls of a view, in a document without anything else. */
import assert from "node:assert/strict";
import test from "node:test";
import type { Figure } from "../src/figures/figure.ts";
import type { Inspector } from "../src/inspect/inspector.ts";
import { Panel } from "../src/inspect/panel.ts";
import type { View } from "../src/inspect/view.ts";

class Node extends EventTarget {
  dataset: Record<string, string> = {};
  hidden = false;
  value = "";
  textContent = "";
  childNodes: unknown[] = [];
  constructor(readonly tag = "") {
    super();
  }
  append(...nodes: unknown[]): void {
    this.childNodes.push(...nodes);
  }
  replaceChildren(...nodes: unknown[]): void {
    this.childNodes = nodes;
  }
  setAttribute(): void {
    return;
  }
  querySelectorAll(selector: string): Node[] {
    assert.equal(selector, "p[data-block]");
    const own = this.childNodes.filter((node) => node instanceof Node);
    return own.filter(({ tag, dataset }) => tag === "p" && "block" in dataset);
  }
  querySelector(selector: string): Node | null {
    const own = this.childNodes.filter((node) => node instanceof Node);
    const here = own.find(({ dataset }) => selector === `[data-control="${dataset.control}"]`);
    return here ?? own.map((node) => node.querySelector(selector)).find(Boolean) ?? null;
  }
}

class Select extends Node {
  get options(): unknown[] {
    return this.childNodes;
  }
}

class Choice {
  constructor(
    readonly text: string,
    readonly value: string,
  ) {}
}

const createElement = (tag: string): Node => (tag === "select" ? new Select() : new Node(tag));
Object.assign(globalThis, {
  document: { createElement },
  HTMLSelectElement: Select,
  Option: Choice,
});

const GROUPS: [string, string][] = ["0", "1", "2", "3"].map((value) => [value, "group " + value]);

/** A panel with a list of groups, of which a link wants one that the list does not have yet. */
function waiting(): [panel: Panel, list: Node] {
  const controls = [{ name: "group", label: "Group", value: "0", options: GROUPS.slice(0, 1) }];
  const view = { title: "", level: "off", about: "", controls, draw: () => undefined } as View;
  const inspector = { draw: () => undefined } as unknown as Inspector;
  const panel = new Panel(new Node() as unknown as HTMLElement, "view", view, inspector);
  panel.restore([["group", "3"]]);
  return [panel, panel.controls.querySelector('[data-control="group"]') as unknown as Node];
}

test("the sentences of another run go, also if those of this run wait for data", () => {
  const inspector = { draw: () => undefined };
  const said: unknown[] = [];
  const view = { title: "", level: "off", about: "" } as View;
  const parent = new Node() as unknown as HTMLElement;
  const panel = new Panel(parent, "view", view, inspector as unknown as Inspector);
  const sum = panel.block("sum", "p");
  const keys = panel.block("keys", "div");
  view.draw = () => said.push([sum.textContent, keys.textContent]);
  panel.draw(undefined);
  sum.textContent = keys.textContent = "3 rows";
  panel.draw(undefined);
  panel.forget();
  panel.draw(undefined);
  assert.deepEqual(said.slice(1), [
    ["3 rows", "3 rows"],
    ["", "3 rows"],
  ]);
});

test("all figures of some data say that it is on its way, or why it is missing", () => {
  const said: (string | null)[] = [];
  const figure = { wait: (reason: string | null) => said.push(reason) } as unknown as Figure;
  for (const found of [undefined, { missing: "It is gone." }]) {
    const panel = Object.assign(Object.create(Panel.prototype) as Panel, { slice: () => found });
    panel.parts<{ all: object }>([figure, figure], { all: { view: "drift" } }, "a");
  }
  assert.deepEqual(said, [null, null, "It is gone.", "It is gone."]);
});

test("a choice of a link is taken as soon as the list has it", () => {
  const [panel] = waiting();
  panel.choices("group", GROUPS.slice(0, 3));
  assert.equal(panel.choice("group"), "0");
  panel.choices("group", GROUPS);
  assert.equal(panel.choice("group"), "3");
});

test("a choice of a link that still waits gives way to a later one of the reader", () => {
  const [panel, list] = waiting();
  panel.choices("group", GROUPS.slice(0, 3));
  list.value = "1";
  list.dispatchEvent(new Event("input"));
  panel.choices("group", GROUPS);
  assert.equal(panel.choice("group"), "1");
});
