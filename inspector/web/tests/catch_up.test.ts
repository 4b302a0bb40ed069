/** What the page asks for when messages of a run are missing. */
import assert from "node:assert/strict";
import test from "node:test";
import { UNANSWERED } from "../src/base/component.ts";
import type { News } from "../src/race/messages.ts";
import { Store } from "../src/race/store.ts";
import { BROKEN_OFF, CatchUp, RECORDING_BROKEN_OFF } from "../src/race/catch_up.ts";
import { finished, raceNews, raceOf, steps } from "./races.ts";

const LACKING: News = { run: null, state: "failed", message: "gone", lanes: {} };

/** A store, and what asks for its race; without an answer the server is gone. */
function asker(
  store: Store,
  answer: () => News | null,
): { catchUp: CatchUp; asked: (string | null)[] } {
  const asked: (string | null)[] = [];
  const catchUp = new CatchUp({
    store,
    ask: async (run) => {
      asked.push(run);
      await Promise.resolve();
      const news = answer();
      if (!news) throw new Error(UNANSWERED);
      return JSON.stringify(news);
    },
    take: (news) => {
      store.take(news);
      return Promise.resolve();
    },
  });
  return { catchUp, asked };
}

test("a run whose messages are over has failed if the server no longer has it", async () => {
  const store = raceOf(steps([0]), []);
  await asker(store, () => LACKING).catchUp.end();
  assert.deepEqual([store.live, store.state, store.message], [false, "failed", BROKEN_OFF]);
  assert.deepEqual([store.run, store.latest(), store.refusal], ["run", { a: 1, b: 0 }, false]);
});

test("a run whose messages are over has failed if the server does not answer", async () => {
  const store = raceOf(steps([0]), []);
  await asker(store, () => null).catchUp.end();
  assert.deepEqual([store.state, store.message], ["failed", UNANSWERED]);
});

test("a later run that broke off before its first step leaves no lanes of the run before", async () => {
  const store = finished();
  store.take({ run: "later", state: "loading", lanes: {} });
  await asker(store, () => LACKING).catchUp.end();
  assert.deepEqual([store.run, store.state, store.pending], ["later", "failed", false]);
  assert.equal(store.started.length, 0);
});

test("the end of a run that the server has is taken, and one that goes on stays as it is", async () => {
  const store = raceOf(steps([0]), []);
  store.take({ run: "run", state: "paused", lanes: {} });
  await asker(store, () => raceNews(steps([0], [1]), [])).catchUp.end();
  assert.deepEqual([store.state, store.latest().a], ["paused", 2]);
  await asker(store, () => raceNews(steps([0], [1]), [], { state: "done" })).catchUp.end();
  assert.equal(store.state, "done");
});

test("a recording whose messages are over ends, and its run is as the server has it", async () => {
  const store = finished();
  const { lanes } = store;
  store.take({ run: "run", state: "recording", recorded: "1", lanes: {} });
  const whole = raceNews(steps([0]), steps([0]), { state: "done", recorded: "2" });
  const { catchUp, asked } = asker(store, () => whole);
  await catchUp.end();
  assert.deepEqual([store.busy, store.state, store.version], [false, "done", "2"]);
  assert.deepEqual([asked, store.lanes === lanes], [["run"], true]);
});

test("a recording that broke off leaves its run finished, also if the server lacks it", async () => {
  const store = finished();
  store.take({ run: "run", state: "recording", lanes: {} });
  await asker(store, () => LACKING).catchUp.end();
  assert.deepEqual([store.busy, store.state], [false, "done"]);
  assert.equal(store.message, RECORDING_BROKEN_OFF);
  assert.equal(store.summary?.speedup, 2);
});

test("steps that were asked for before the end of a run do not end its recording", async () => {
  const store = raceOf(steps([0]), []);
  const whole = raceNews(steps([0], [1]), steps([2]), { state: "done" });
  const coming = asker(store, () => whole).catchUp.complete();
  store.take({ run: "run", state: "recording", lanes: {} });
  await coming;
  assert.deepEqual([store.busy, store.state], [true, "recording"]);
});

test("a run that is over is not asked for, and one that starts meanwhile does not fail", async () => {
  const over = asker(finished(), () => LACKING);
  await over.catchUp.end();
  assert.deepEqual(over.asked, []);
  const store = raceOf(steps([0]), []);
  const ending = asker(store, () => LACKING).catchUp.end();
  store.take({ run: "later", state: "starting", lanes: {} });
  await ending;
  assert.deepEqual([store.newest, store.state], ["later", "starting"]);
});

test("missing steps are asked for once, and no answer ends no run", async () => {
  const store = raceOf(steps([0]), []);
  const { catchUp, asked } = asker(store, () => null);
  await Promise.all([catchUp.complete(), catchUp.complete()]);
  assert.deepEqual([asked, store.state], [["run"], "running"]);
});
