import assert from "node:assert/strict";
import test from "node:test";
import { Focus } from "../src/race/focus.ts";

/** A node that can have the focus, in a document without anything else. */
class Node {
  isConnected = true;
  disabled = false;
  checkVisibility = (): boolean => true;
  closest = (): null => null;
  contains = (): boolean => true;
  focus(): void {
    page.activeElement = this;
  }
}

const body = new Node();
const page = Object.assign(new EventTarget(), { body, activeElement: body });
Object.assign(globalThis, { document: page, HTMLElement: Node });

function send(name: string, target: Node): void {
  page.dispatchEvent(Object.defineProperty(new Event(name), "target", { value: target }));
}

/** A race with the focus on a key of it. */
function focused(): { root: Node; key: Node; focus: Focus } {
  const [root, key] = [new Node(), new Node()];
  const focus = new Focus(root as unknown as HTMLElement, null);
  key.focus();
  send("focusin", key);
  return { root, key, focus };
}

test("the race has the focus when a drawing takes the focused key away", async () => {
  const { root, key, focus } = focused();
  send("focusout", key); // before it is taken away
  key.isConnected = false;
  page.activeElement = body;
  await Promise.resolve();
  focus.check();
  assert.equal(page.activeElement, root);
});

test("a reader who leaves the race is not brought back", async () => {
  const { key, focus } = focused();
  send("focusout", key);
  page.activeElement = body;
  await Promise.resolve();
  key.isConnected = false;
  focus.check();
  assert.equal(page.activeElement, body);
});
