import assert from "node:assert/strict";
import { test } from "node:test";
import { emptyViews } from "../src/inspect/empty_views.ts";
import { firstSplit, splitLines } from "../src/inspect/first_split.ts";
import { measuredWords, headline, pill, recordWords, stats } from "../src/race/report.ts";
import { comparable, started } from "../src/race/lane.ts";
import { Store } from "../src/race/store.ts";
import { describe } from "../src/race/tokens.ts";
import { laneEnd, laneStart, steps, summaryOf } from "./races.ts";

/** A race of imported runs: lane A has times, lane B has none. */
function imported(apart = ""): Store {
  const store = new Store();
  const rows = steps([0], [1]);
  const other = steps([0], [1]);
  other[1][7][1] = 77;
  store.take({
    run: "run",
    state: "imported",
    reset: true,
    lanes: {
      a: { start: laneStart({ lacks: ["costs"] }), rows, end: laneEnd() },
      b: { start: laneStart({ lacks: ["costs", "times"] }), rows: other, end: laneEnd() },
    },
    summary: summaryOf({ speedup: null, apart }),
  });
  return store;
}

test("lanes that are not compared have no cells that differ", () => {
  const { a, b } = imported().lanes;
  assert.ok(started(a));
  assert.equal(comparable(a, b), true);
  const apart = imported("Their prompts differ.").lanes;
  assert.ok(started(apart.a));
  assert.equal(comparable(apart.a, apart.b), false);
});

test("a token of an imported run without a confidence was not filled in", () => {
  const { a } = imported().lanes;
  assert.ok(started(a));
  const token = a.at[0];
  assert.ok(token);
  token.sure = null;
  assert.match(describe(a, 0, 2), /confidence not known · committed at step 1/);
});

test("a lane without times keeps the race from being aligned by time", () => {
  const store = imported();
  assert.equal(store.timed, false);
  assert.equal(store.extent("step"), 2);
  const timed = new Store();
  const start = laneStart({ lacks: ["costs"] });
  timed.take({ run: "r", state: "imported", reset: true, lanes: { a: { start } } });
  assert.equal(timed.timed, true);
});

test("unknown forwards and rows are not shown as numbers", () => {
  const store = imported();
  const shown = Object.fromEntries(stats(store.lanes.b, 2));
  assert.equal(shown.Forwards, "–");
  assert.equal(shown.Time, "–");
  assert.notEqual(Object.fromEntries(stats(store.lanes.a, 2)).Time, "–", "lane A has times");
  assert.equal(shown["Masks left"], "2");
  assert.equal(pill(store.lanes.b, 1), "step 1");
});

test("every view but Compare says that the file does not have its data", () => {
  const frame = { level: "off" as const, lacks: [], causal: false };
  const lane = { frame, record: "", lacks: ["costs", "times"] as const };
  const empty = emptyViews([lane, lane]);
  assert.match(empty.get("drift") ?? "", /another engine: its file has no drifts/);
  assert.match(empty.get("time") ?? "", /no FLOPs/);
  assert.match(empty.get("guider") ?? "", /file does not say whether a guider/);
  assert.equal(empty.has("compare"), false);
});

test("the first split is named, without advice to record", () => {
  const { a, b } = imported().lanes;
  const facts = {
    recordable: false,
    frames: {},
    done: () => null,
    candidates: () => null,
    token: () => null,
  };
  const lines = splitLines(firstSplit(a, b), facts);
  assert.match(lines[0], /first differ at answer token 2/);
  assert.match(lines[1], /not say how this row was computed/);
});

test("lanes that cannot be compared say why, and none can be recorded", () => {
  const store = imported("Their prompts differ.");
  assert.equal(headline(store, store.latest()), "Their prompts differ.");
  assert.match(recordWords(store, {}, false), /cannot be recorded/);
  assert.match(measuredWords(store), /Lane B: .*no times/);
});
