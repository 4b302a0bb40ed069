/** The tables and blocks of views, in a document without anything else. */
import assert from "node:assert/strict";
import test from "node:test";
import { Panel } from "../src/inspect/panel.ts";
import { candidates } from "../src/inspect/views/candidates.ts";
import { compare, numbersTable } from "../src/inspect/views/compare.ts";
import { bytes, floats, frame, ints } from "./inspected.ts";
import { laneStart, raceOf } from "./races.ts";

class Node {
  children: unknown[] = [];
  dataset: Record<string, string> = {};
  style: Record<string, string> = {};
  scope = "";
  hidden = false;
  constructor(readonly tag: string) {}
  append(...nodes: unknown[]): void {
    this.children.push(...nodes);
  }
  replaceChildren(...nodes: unknown[]): void {
    this.children = nodes;
  }
  setAttribute(): void {
    return;
  }
  addEventListener(): void {
    return;
  }
}

Object.assign(globalThis, { document: { createElement: (tag: string) => new Node(tag) } });

/** What the heads in some nodes are the heads of, in their order. */
function scopes(nodes: readonly unknown[]): string[] {
  return nodes.flatMap((node) => {
    if (!(node instanceof Node)) return [];
    return [...(node.tag === "th" ? [node.scope] : []), ...scopes(node.children)];
  });
}

test("the numbers of the lanes have heads of columns and of rows", () => {
  const table = numbersTable([
    ["Measure", "A: plain", "B: dual"],
    ["Forwards", "32", "16"],
  ]);
  assert.deepEqual(scopes([table]), ["col", "col", "col", "row"]);
});

test("the tokens of a candidate have heads of columns", () => {
  const arrays = {
    position: ints([1], [3]),
    ids: ints([1, 1], [7]),
    probs: floats([1, 1], [0.5]),
    chosen: bytes([1], [0]),
  };
  let shown: unknown[] = [];
  const box = { dataset: {}, replaceChildren: (...nodes: unknown[]) => (shown = nodes) };
  const panel = Object.create(Panel.prototype, {
    frame: { value: { ...frame(), causal: true } },
    lane: { value: { stepNumber: (step: number) => step + 1 } },
    cursor: { value: { lane: "b", step: 0, layer: 0, position: 3 } },
    inspector: { value: { key: "", store: { busy: false } } },
    map: { value: () => null },
    block: { value: () => box },
    slice: { value: () => ({ arrays, facts: { pieces: {} } }) },
  }) as Panel;
  candidates.draw(panel, undefined);
  assert.deepEqual(scopes(shown), ["col", "col", "col", "col"]);
});

test("lanes with different vocabularies leave nothing of a comparison made before", () => {
  const [a, b] = ["one", "two"].map((vocabulary) => ({ start: laneStart({ vocabulary }) }));
  const store = raceOf([], [], { lanes: { a, b } });
  const blocks: Partial<Record<string, Node>> = {};
  const strip = { root: { hidden: false } };
  const panel = Object.create(Panel.prototype, {
    inspector: { value: { key: "", align: () => "step", store } },
    figures: { value: { "compare-strip": strip } },
    block: { value: (name: string) => (blocks[name] ??= new Node("div")) },
  }) as Panel;
  compare.draw(panel, undefined);
  assert.deepEqual([strip.root.hidden, blocks.layers?.hidden], [true, true]);
  assert.equal(blocks.numbers?.hidden, false);
});
