import assert from "node:assert/strict";
import test from "node:test";
import { Gestures } from "../src/figures/gestures.ts";

test("a drag ends when the pointer comes back released", () => {
  const node = Object.assign(new EventTarget(), {
    getBoundingClientRect: () => ({ left: 0, top: 0 }),
    setPointerCapture: () => undefined,
  });
  const send = (type: string, more: object): void => {
    node.dispatchEvent(Object.assign(new Event(type), { pointerId: 1, ...more }));
  };
  let marks = 0;
  new Gestures(node as unknown as HTMLElement, {
    box: () => ({ left: 0, top: 0, right: 99, bottom: 99 }),
    zoom: () => undefined,
    move: () => undefined,
    mark: () => marks++,
    unmark: () => undefined,
  });
  send("pointerdown", { button: 0, buttons: 1, clientX: 50, clientY: 2 });
  send("pointermove", { buttons: 1, clientX: 50, clientY: 30 });
  assert.equal(marks, 1);
  send("pointermove", { buttons: 0, clientX: 60, clientY: 60 });
  send("pointermove", { buttons: 1, clientX: 70, clientY: 70 });
  assert.equal(marks, 1);
});
