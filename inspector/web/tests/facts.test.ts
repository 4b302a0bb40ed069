import assert from "node:assert/strict";
import test from "node:test";
import { writeFacts } from "../src/inspect/facts.ts";

class Node {
  dataset: Record<string, string> = {};
  textContent = "";
  nodes: Node[] = [];
  append(...nodes: Node[]): void {
    this.nodes.push(...nodes);
  }
  replaceChildren(...nodes: Node[]): void {
    this.nodes = nodes;
  }
}

Object.assign(globalThis, { document: { createElement: () => new Node() } });

test("facts that did not change keep their nodes", () => {
  const list = new Node();
  const write = (value: string): Node[] => {
    writeFacts(list as unknown as HTMLElement, [["Token", value]]);
    return list.nodes;
  };
  const first = write("a");
  assert.deepEqual(
    first[0].nodes.map(({ textContent }) => textContent),
    ["Token", "a"],
  );
  assert.equal(write("a"), first);
  assert.notEqual(write("b"), first);
});
