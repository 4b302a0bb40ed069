import assert from "node:assert/strict";
import test from "node:test";
import { Focus, redrawInPlace, taskKeys } from "../src/base/focus.ts";

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
/** What is told of a change of `disabled`, or of a size. */
let tell: () => void = () => undefined;
let watching = 0;
class Watch {
  constructor(told: () => void) {
    tell = told;
  }
  observe(): void {
    watching++;
  }
  disconnect(): void {
    watching--;
    tell = () => undefined;
  }
}
Object.assign(globalThis, { document: page, HTMLElement: Node });
Object.assign(globalThis, { MutationObserver: Watch, ResizeObserver: Watch });

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

test("the stop button has the focus while a batch runs, and the run button after it", () => {
  const buttons: Record<string, Node> = {};
  const box = Object.assign(new Node(), {
    querySelector: (id: string): Node => buttons[id.replace("#ds-batch-", "")],
  });
  for (const name of ["run", "estimate", "continue", "stop"])
    buttons[name] = Object.assign(new Node(), { id: `ds-batch-${name}`, closest: () => box });
  const { run, stop } = buttons;
  buttons.continue.disabled = stop.disabled = true;
  const root = Object.assign(new Node(), { contains: () => false });
  new Focus(root as unknown as HTMLElement, taskKeys("batch"));
  const move = (node: Node): void => {
    node.focus();
    send("focusin", node);
  };
  for (const node of Object.values(buttons)) node.focus = () => (page.activeElement = node);
  move(run);
  run.disabled = true;
  tell();
  assert.equal(page.activeElement, box); // nothing can be pressed yet
  send("focusin", box);
  stop.disabled = false;
  tell();
  assert.equal(page.activeElement, stop);
  send("focusin", stop);
  [stop.disabled, run.disabled] = [true, false]; // the batch is over
  tell();
  assert.equal(page.activeElement, run);
});

test("the race has the focus once the key that opened its tab is hidden", () => {
  const { root, key, focus } = focused();
  const race = new Node();
  Object.assign(page, { querySelector: () => race });
  focus.toRaceOnceHidden();
  tell();
  assert.equal(page.activeElement, key);
  root.checkVisibility = key.checkVisibility = (): boolean => false;
  tell();
  assert.equal(page.activeElement, race);
});

test("a focus that went elsewhere before the key was hidden stays there", () => {
  const { root, focus } = focused();
  const tab = new Node();
  Object.assign(page, { querySelector: () => new Node() });
  focus.toRaceOnceHidden();
  tab.focus();
  root.checkVisibility = (): boolean => false;
  tell();
  assert.equal(page.activeElement, tab);
});

test("a race that is asked for again, after a refusal, is waited for once", () => {
  const { focus } = focused();
  const before = watching;
  for (let press = 0; press < 3; press++) focus.toRaceOnceHidden();
  assert.equal(watching, before + 1);
});

/** Texts of a table, scrolled by so many pixels each. */
function textsAt(...tops: number[]): (Node & { scrollTop: number })[] {
  return tops.map((scrollTop, i) =>
    Object.assign(new Node(), { getAttribute: () => `1.${i}.text`, scrollTop }),
  );
}

/** A box with texts, which is drawn again with others of the same names. */
function redrawn(before: Node[], after: Node[], changes: Partial<Node> = {}): void {
  let shown = before;
  const box = Object.assign(new Node(), { querySelectorAll: () => shown }, changes);
  redrawInPlace(box as unknown as HTMLElement, "data-place", () => {
    shown = after;
  });
}

test("the focused text of a box that is drawn again keeps the focus and its place", () => {
  const [before, after] = [textsAt(30, 0), textsAt(0, 0)];
  before[0].focus();
  redrawn(before, after);
  assert.deepEqual([page.activeElement === after[0], after[0].scrollTop], [true, 30]);
  const elsewhere = textsAt(0)[0];
  elsewhere.focus();
  redrawn(before, after, { contains: () => false });
  assert.equal(page.activeElement, elsewhere);
});

test("a text that is scrolled without the focus keeps its place in a box that is drawn again", () => {
  const [before, after] = [textsAt(30, 70), textsAt(0, 0, 0)];
  body.focus();
  redrawn(before, after, { contains: () => false });
  const tops = after.map(({ scrollTop }) => scrollTop);
  assert.deepEqual([page.activeElement === body, ...tops], [true, 30, 70, 0]);
});
