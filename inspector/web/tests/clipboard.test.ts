import assert from "node:assert/strict";
import test from "node:test";
import { copyOnPress } from "../src/base/clipboard.ts";

/** What the key "Copy" says after a press where the page has no clipboard; `works`: the old way does. */
async function said(works: boolean): Promise<string | null> {
  Object.assign(globalThis, { document: { execCommand: () => works } });
  const key = Object.assign(new EventTarget(), { textContent: "Copy" });
  const field = { value: "a link", select: () => undefined };
  copyOnPress(key as unknown as HTMLElement, field as unknown as HTMLInputElement);
  key.dispatchEvent(new Event("click"));
  await new Promise((done) => setTimeout(done));
  return key.textContent;
}

test("a key says that a text is copied only if it is", async () => {
  assert.equal(await said(true), "Copied");
  assert.equal(await said(false), "Not copied");
});
