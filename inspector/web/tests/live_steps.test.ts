/** Following a live run: when the server is asked, and what for. */
import assert from "node:assert/strict";
import test from "node:test";
import { LiveSteps } from "../src/race/live_steps.ts";
import type { News } from "../src/race/messages.ts";
import { Store } from "../src/race/store.ts";

const MOST = 10; // questions, so that a run that is followed for ever fails a test

/** New steps of a lane of the run `run`; what they are is not read here. */
const SOME: News = { run: "run", state: "running", lanes: { a: { rows: [] } } };

/**
 * A store with a run in a state, and what is asked for it; the server answers with `news`, and
 * `answer`, which may change the store, is called with it.
 */
function follower(
  state: string,
  answer: (store: Store, asked: number) => void,
  news: News = SOME,
): { store: Store; asked: [string, number, number][]; pauses: number[]; live: LiveSteps } {
  const store = new Store();
  store.run = "run";
  store.state = state;
  const asked: [string, number, number][] = [];
  const pauses: number[] = [];
  let clock = 0;
  const live = new LiveSteps({
    store,
    ask: (...what) => {
      asked.push(what);
      clock += 40;
      return Promise.resolve(JSON.stringify(news));
    },
    take: () => {
      answer(store, asked.length);
      return Promise.resolve();
    },
    pause: (ms) => {
      if (pauses.push(ms) === MOST) store.state = "done";
      return Promise.resolve();
    },
    now: () => clock,
  });
  return { store, asked, pauses, live };
}

test("a run is asked for until it ends, one question at a time", async () => {
  const { asked, pauses, live } = follower("running", (store, count) => {
    if (count === 3) store.state = "done";
  });
  await Promise.all([live.follow(), live.follow()]);
  assert.deepEqual(asked, Array<unknown>(3).fill(["run", -1, -1]));
  assert.deepEqual(pauses, [85, 85, 85]);
});

for (const state of ["done", "paused", "lock", "recording"]) {
  test(`a race that is ${state} is not asked for`, async () => {
    const { asked, live } = follower(state, () => assert.fail());
    await live.follow();
    assert.equal(asked.length, 0);
  });
}

test("the answer for another run is dropped", async () => {
  let taken = 0;
  const { store, asked, live } = follower("running", () => taken++);
  const following = live.follow();
  store.run = "later";
  store.pending = true;
  await following;
  assert.deepEqual([asked.length, taken], [1, 0]);
});

test("a run that the server does not have is asked for once", async () => {
  const gone: News = { run: null, state: "empty", lanes: {} };
  const { asked, live } = follower("running", () => undefined, gone);
  await live.follow();
  assert.equal(asked.length, 1);
});

test("an answer without steps is not drawn, and the run is asked for again", async () => {
  let drawn = 0;
  const { asked, live } = follower("running", () => drawn++, { ...SOME, lanes: {} });
  await live.follow();
  assert.deepEqual([asked.length, drawn], [MOST, 0]);
});

test("a failed question ends it, and it can begin again", async () => {
  const { store, asked, live } = follower("running", (held, count) => {
    if (count === 1) throw new Error("the server is gone");
    held.state = "done";
  });
  await live.follow();
  assert.equal(asked.length, 1);
  assert.equal(store.state, "running");
  await live.follow();
  assert.equal(asked.length, 2);
});
