import assert from "node:assert/strict";
import test from "node:test";
import { browserStorage, keep } from "../src/base/storage.ts";

const forbidden = {
  get sessionStorage(): Storage {
    throw new Error("Access is denied for this document.");
  },
};

test("a page in a frame that may not use a storage has none, and keeps nothing", () => {
  Object.assign(globalThis, { window: forbidden });
  const storage = browserStorage("sessionStorage");
  assert.equal(storage, null);
  keep(storage, "key", "text");
});

test("a text is kept, unless the storage is full", () => {
  const kept: string[] = [];
  keep({ setItem: (key, text) => void kept.push(key, text) }, "key", "text");
  assert.deepEqual(kept, ["key", "text"]);
  keep({ setItem: () => assert.fail("full") }, "key", "text");
});
