/** The tables and blocks of views, in a document without anything else. */
import assert from "node:assert/strict";
import test from "node:test";
import { Panel } from "../src/inspect/panel.ts";
import { candidates } from "../src/inspect/views/candidates.ts";
import { compare, numbersTable } from "../src/inspect/views/compare.ts";
import { drawParting } from "../src/inspect/views/parting_layers.ts";
import type { Query } from "../src/inspect/slice.ts";
import { Lane } from "../src/race/lane.ts";
import { bytes, floats, frame, ints } from "./inspected.ts";
import { laneStart, raceOf } from "./races.ts";

class Node {
  children: unknown[] = [];
  dataset: Record<string, string> = {};
  style: Record<string, string> = {};
  scope = "";
  textContent = "";
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
  querySelectorAll(): unknown[] {
    return [];
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

/** What is said of the layers at the step where the lanes diverge, of which B was probed. */
function layersSaid(probes: object | undefined): string[] | null {
  const box = new Node("div");
  const store = { recordable: true };
  const frames = { b: { ...frame(), level: "probe" } };
  const panel = Object.create(Panel.prototype, {
    inspector: { value: { key: "", store, frames, offline: () => false } },
    choice: { value: () => "2" },
    cursor: { value: { lane: "b", layer: 0 } },
    block: { value: () => box },
    slice: { value: ({ part }: Query) => (part === "facts" ? probes : GONE) },
  }) as Panel;
  drawParting(panel, [new Lane("a"), new Lane("b")], { step: 0, a: [], b: [], edits: [] });
  return box.hidden ? null : box.children.map((node) => (node as Node).textContent);
}

const GONE = { missing: "It is gone." };

test("the mean errors of a probed step that are missing are not read for ever", () => {
  const said = layersSaid({ arrays: { step: ints([1], [0]) }, facts: {} });
  assert.deepEqual(said, ["Open step 1 in Error against exact", "Lane B: It is gone."]);
});

test("a step is offered for probing only once it is known that it was not probed", () => {
  assert.equal(layersSaid(undefined), null);
  assert.deepEqual(layersSaid(GONE), ["Lane B: It is gone."]);
  const others = { arrays: { step: ints([1], [1]) }, facts: {} };
  assert.deepEqual(layersSaid(others), ["Record and probe step 1"]);
});
