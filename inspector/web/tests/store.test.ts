import assert from "node:assert/strict";
import test from "node:test";
import { Store } from "../src/race/store.ts";
import { finished, laneEnd, laneStart, raceNews, raceOf, steps, summaryOf } from "./races.ts";

test("new steps are appended to the lanes", () => {
  const store = raceOf(steps([0]), []);
  const [, second] = steps([0], [1]);
  assert.equal(
    store.take({ run: "run", state: "running", lanes: { a: { rows: [second] } } }),
    true,
  );
  assert.deepEqual(store.latest(), { a: 2, b: 0 });
});

test("a gap in the steps is told, so that the whole race is asked for", () => {
  const store = raceOf(steps([0]), []);
  const [, , third] = steps([0], [1], [2]);
  assert.equal(
    store.take({ run: "run", state: "running", lanes: { a: { rows: [third] } } }),
    false,
  );
});

test("steps that were missing are added to the lanes that are shown", () => {
  const store = raceOf(steps([0]), []);
  const { lanes } = store;
  const whole = store.asKnown(raceNews(steps([0], [1]), steps([2])));
  assert.equal(store.take(whole), true);
  assert.equal(store.lanes, lanes);
  assert.deepEqual(store.latest(), { a: 2, b: 1 });
  assert.deepEqual([store.lanes.a.token(0, 1)?.id, store.lanes.a.token(1, 2)?.id], [10, 11]);
});

test("a run whose first message was missed is asked for, and then replaces the one before", () => {
  const store = raceOf(steps([0]), [], { state: "done" });
  const news = { b: { start: laneStart() } };
  assert.equal(store.take({ run: "later", state: "running", lanes: news }), false);
  assert.deepEqual([store.run, store.newest], ["run", "later"]);
  const [earlier, later] = ["run", "later"].map((run) =>
    raceNews(steps([0], [1]), steps([2]), { run }),
  );
  assert.deepEqual([store.awaits(earlier), store.awaits(later)], [false, true]);
  assert.equal(store.take(store.asKnown(later)), true);
  assert.deepEqual([store.run, store.pending], ["later", false]);
  assert.deepEqual(store.latest(), { a: 2, b: 1 });
});

test("the whole race of a run that has ended meanwhile is not wanted any more", () => {
  const store = raceOf(steps([0]), []);
  const whole = raceNews(steps([0], [1]), []);
  assert.equal(store.awaits(whole), true);
  store.take({ ...whole, state: "done" });
  assert.equal(store.awaits(whole), false);
});

test("the whole race of another run replaces what there was", () => {
  const store = raceOf(steps([0]), steps([1]));
  store.take(raceNews(steps([0], [1]), [], { run: "later" }));
  assert.deepEqual(store.latest(), { a: 2, b: 0 });
});

test("the end of a run is added to the lanes that are shown, at which the reader may look", () => {
  const store = raceOf(steps([0]), []);
  const { lanes } = store;
  const end = raceNews(steps([0], [1]), steps([2]), { state: "done", summary: summaryOf() });
  if (end.lanes.a) end.lanes.a.end = laneEnd();
  store.take(end);
  assert.equal(store.lanes, lanes);
  assert.deepEqual([store.state, store.latest()], ["done", { a: 2, b: 1 }]);
  assert.deepEqual([store.summary?.speedup, store.lanes.a.end?.reason], [2, "done"]);
});

test("a copy of the example keeps the lanes, and another example replaces them", () => {
  const example = { state: "example" };
  const store = raceOf(steps([0], [1]), steps([2]), example);
  const { lanes } = store;
  store.take(raceNews(steps([0], [1]), steps([2]), { ...example, run: "copy", recorded: "1" }));
  assert.deepEqual([store.lanes === lanes, store.run, store.version], [true, "copy", "1"]);
  store.take(raceNews(steps([0], [1]), steps([3]), { ...example, run: "other" }));
  assert.deepEqual([store.lanes === lanes, store.run], [false, "other"]);
});

test("a run with the settings and the tokens of the one before has lanes of its own", () => {
  const store = raceOf([], [], { state: "stopped" });
  const { lanes } = store;
  store.take(raceNews([], [], { run: "later" }));
  assert.notEqual(store.lanes, lanes);
});

test("the whole race of a paused run leaves it paused, and that of one that is over ends it", () => {
  const store = raceOf(steps([0]), []);
  store.take({ run: "run", state: "paused", lanes: {} });
  const whole = raceNews(steps([0], [1]), []);
  assert.equal(whole.state, "running");
  store.take(store.asKnown(whole));
  assert.deepEqual([store.state, store.latest().a], ["paused", 2]);
  assert.equal(store.asKnown({ ...whole, state: "done" }).state, "done");
});

test("news of a later run leave the lanes as they are until it starts", () => {
  const store = raceOf(steps([0]), []);
  store.take({ run: "later", state: "loading", lanes: {} });
  assert.deepEqual([store.run, store.state, store.pending], ["run", "loading", true]);
  assert.equal(store.lanes.a.rows.length, 1);
});

test("the end and the recording of a run that is no longer shown change nothing", () => {
  const store = raceOf(steps([0]), []);
  store.take({ run: "run", state: "example", lanes: {} });
  for (const state of ["recording", "done", "stopped"])
    assert.equal(store.take({ run: "earlier", state, message: "x", lanes: {} }), true);
  assert.deepEqual([store.run, store.state, store.pending], ["run", "example", false]);
  assert.equal(store.message, "");
});

test("a refusal keeps the run and is over with the next message", () => {
  const store = raceOf(steps([0]), []);
  store.take({ run: null, state: "failed", message: "no", lanes: {} });
  assert.deepEqual([store.run, store.state, store.refusal], ["run", "running", true]);
  store.take({ run: "run", state: "running", lanes: {} });
  assert.equal(store.refusal, false);
});

test("the words of a refusal do not stand over the run that follows it", () => {
  const store = raceOf(steps([0]), []);
  store.take({ run: null, state: "failed", message: "no", lanes: {} });
  store.take({ run: "later", state: "loading", lanes: {} });
  assert.deepEqual([store.pending, store.refusal, store.message], [true, false, ""]);
});

test("a run is live until its last state; nothing can be asked for meanwhile", () => {
  const store = raceOf(steps([0]), []);
  assert.deepEqual([store.live, store.busy], [true, true]);
  store.take({ run: "run", state: "done", lanes: {}, summary: summaryOf() });
  assert.deepEqual([store.live, store.busy], [false, false]);
  assert.equal(store.summary?.speedup, 2);
});

test("only whole runs of this engine can be recorded", () => {
  assert.equal(finished().recordable, true);
  assert.equal(new Store().recordable, false);
  assert.equal(raceOf(steps([0]), steps([0])).recordable, false);
  const [stopped, foreign] = [finished(), finished()];
  stopped.lanes.b.end = laneEnd({ reason: "stopped" });
  if (foreign.lanes.a.start) foreign.lanes.a.start.lacks = ["costs"];
  assert.deepEqual([stopped.recordable, foreign.recordable], [false, false]);
});

test("the data of a run that was stopped can be read once the version of its data has come", () => {
  const store = raceOf(steps([0]), []);
  assert.equal(store.settled, false);
  store.take({ run: "run", state: "stopped", lanes: {} });
  assert.equal(store.settled, false);
  store.take({ run: "run", state: "stopped", recorded: "1", lanes: {} });
  assert.equal(store.settled, true);
});

test("times are not shown if layers were recorded", () => {
  const start = laneStart({ record: "layers" });
  assert.equal(raceOf([], [], { lanes: { a: { start } } }).timed, false);
  assert.equal(raceOf([], []).timed, true);
});

test("the frames at a time are those whose steps are done by then", () => {
  const store = raceOf(steps([0], [1], [2]), steps([0]));
  assert.deepEqual(store.frames("time", { value: 25, later: Infinity }), { a: 2, b: 1 });
});

test("a lane that has ended stays at its last step", () => {
  const store = raceOf(steps([0], [1], [2]), steps([0]));
  assert.deepEqual(store.frames("step", { value: 3, later: Infinity }), { a: 3, b: 1 });
});

test("an empty store has no extent and no run", () => {
  const store = new Store();
  assert.deepEqual([store.extent("time"), store.latest(), store.started], [0, { a: 0, b: 0 }, []]);
});
