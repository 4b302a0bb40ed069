/** The data that the inspector keeps of a race, without a page. */
import assert from "node:assert/strict";
import test from "node:test";
import { Inspector } from "../src/inspect/inspector.ts";
import type { Missing } from "../src/inspect/view.ts";
import type { Store } from "../src/race/store.ts";
import { frame } from "./inspected.ts";

/** An inspector with some of its parts only. */
function inspectorOf(parts: object): Inspector {
  const made: unknown = Object.assign(Object.create(Inspector.prototype) as object, parts);
  return made as Inspector;
}

test("the data of a race goes with it, also that of closed views", () => {
  const gone: string[] = [];
  const panel = (name: string): object => ({ forget: () => gone.push(name) });
  const inspector = inspectorOf({
    store: { run: "second" },
    panels: { drift: panel("drift"), time: panel("time") },
    card: panel("card"),
    documents: { reset: () => gone.push("documents") },
    slices: { reset: (...data: string[]) => gone.push("slices " + data.join("/")) },
    cursor: { leave: () => undefined },
    frames: { a: frame() },
    key: "first/1",
  });
  inspector.leave({} as Store["lanes"]);
  assert.deepEqual(gone, ["documents", "slices second/", "card", "drift", "time"]);
  assert.deepEqual([inspector.key, inspector.frames], ["", {}]);
});

test("a lane whose data will not come says so", () => {
  const lack = (settled: boolean, found?: Missing): string | null =>
    inspectorOf({
      store: { settled, started: [{ name: "a" }], lanes: { a: { start: {} }, b: { start: null } } },
      slices: { get: () => found },
      seen: true,
    }).lackOf("b");
  assert.equal(lack(true), null);
  assert.equal(lack(true, { missing: "It is gone." }), "It is gone.");
  assert.match(lack(false) ?? "", /^The run broke off/);
});
