/** The data that the inspector keeps of a race, without a page. */
import assert from "node:assert/strict";
import test from "node:test";
import { Inspector } from "../src/inspect/inspector.ts";
import type { Missing } from "../src/inspect/view.ts";
import type { Store } from "../src/race/store.ts";
import { rowReason } from "../src/inspect/row_reason.ts";
import { frame } from "./inspected.ts";

/** The parts of a drawing of the inspector. */
interface Drawing {
  drawView: (panel: object) => boolean;
  drawCard: () => boolean;
}

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

/** A store with a lane A, and no lane B. */
const STORE = {
  started: [{ name: "a" }],
  lanes: { a: { start: {} }, b: { start: null } },
  version: "1",
  settled: true,
};

test("a lane whose data will not come says so", () => {
  const lack = (store: object, found?: Missing, frames = {}): string | null => {
    const slices = { get: () => found };
    return inspectorOf({ store: { ...STORE, ...store }, slices, frames, seen: true }).lackOf("b");
  };
  const empty = { b: { ...frame(), steps: 0 } };
  assert.equal(lack({}), null);
  assert.equal(lack({}, { missing: "It is gone." }), "It is gone.");
  assert.match(lack({ settled: false, version: "" }) ?? "", /^The run broke off/);
  assert.match(lack({}, undefined, empty) ?? "", /^The run ended before the first step/);
  assert.equal(lack({ settled: false }), null, "another run has begun, which is not shown yet");
});

test("a lane that took no step has nothing to draw, and no reason for a row", () => {
  const said: string[] = [];
  const inspector = inspectorOf({
    store: { ...STORE, state: "stopped", live: false, lanes: { a: {} } },
    cursor: { now: { lane: "a", position: 3 } },
    frames: { a: { ...frame(), steps: 0 } },
    name: "drift",
    find: () => ({}),
  });
  const { drawView, drawCard } = inspector as unknown as Drawing;
  const panel = { say: (text: string) => said.push(text) };
  assert.equal(drawView.call(inspector, panel), false);
  assert.equal(drawCard.call(inspector), true);
  const row = rowReason(inspector, "a", { step: 0, layer: 0, position: 3 }, () => undefined);
  assert.deepEqual([said, row], [[inspector.lackOf("a")], inspector.lackOf("a")]);
});

test("in place of the views the inspector says what a recording waits for", () => {
  const said: string[] = [];
  const inspector = inspectorOf({
    store: { ...STORE, state: "recording", message: "0 of 8", wait: { state: "calibrating" } },
    cursor: { now: { lane: "a" } },
    frames: {},
    name: "drift",
  });
  const { drawView } = inspector as unknown as Drawing;
  assert.equal(drawView.call(inspector, { say: (text: string) => said.push(text) }), false);
  assert.deepEqual(said, ["Recording … Preparing the cache for this model (once, not timed) …"]);
});
