import assert from "node:assert/strict";
import test, { afterEach, beforeEach, mock } from "node:test";
import { copyOnPress } from "../src/base/clipboard.ts";

interface Words {
  textContent: string;
  role?: string;
}

beforeEach(() => mock.timers.enable({ apis: ["setTimeout"] }));
afterEach(() => mock.timers.reset());

/** The key "Copy" with the live region beside it, pressed where the page has no clipboard. */
async function pressed(works: boolean): Promise<{ key: Words; spoken: Words }> {
  const spoken: Words = { textContent: "" };
  let beside: unknown = null;
  const key = Object.assign(new EventTarget(), {
    textContent: "Copy",
    before: (node: unknown) => (beside = node),
  });
  Object.assign(globalThis, {
    document: { execCommand: () => works, createElement: () => spoken },
  });
  const field = { value: "a link", select: () => undefined };
  copyOnPress(key as unknown as HTMLElement, field as unknown as HTMLInputElement);
  assert.equal(beside, spoken);
  key.dispatchEvent(new Event("click"));
  await new Promise((done) => setImmediate(done));
  return { key, spoken };
}

test("a key says that a text is copied only if it is", async () => {
  assert.equal((await pressed(true)).key.textContent, "Copied");
  assert.equal((await pressed(false)).key.textContent, "Not copied");
});

test("a screen reader is told that a text is copied, and again after another press", async () => {
  const { key, spoken } = await pressed(true);
  assert.deepEqual([spoken.role, spoken.textContent], ["status", "Copied"]);
  mock.timers.tick(2000);
  assert.deepEqual([key.textContent, spoken.textContent], ["Copy", ""]);
});

test("a text that is not shown is copied from a field, and the key keeps the focus", async () => {
  const happened: string[] = [];
  const field = {
    value: "",
    select: () => happened.push("selected"),
    remove: () => happened.push("removed"),
  };
  const key = Object.assign(new EventTarget(), {
    textContent: "Copy the preset",
    before: () => undefined,
    after: () => happened.push("added"),
    focus: () => happened.push("focus"),
  });
  Object.assign(globalThis, {
    document: {
      createElement: (tag: string) => (tag === "textarea" ? field : { textContent: "" }),
      execCommand: () => happened.push(field.value) > 0,
    },
  });
  copyOnPress(key as unknown as HTMLElement, () => "a preset");
  key.dispatchEvent(new Event("click"));
  await new Promise((done) => setImmediate(done));
  assert.deepEqual(happened, ["added", "selected", "a preset", "removed", "focus"]);
  assert.equal(key.textContent, "Copied");
});
