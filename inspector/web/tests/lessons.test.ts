import assert from "node:assert/strict";
import test from "node:test";
import {
  newestAt,
  stripCells,
  stripWords,
  type Attention,
  type StripCell,
  type StripDrift,
} from "../src/page/lesson_strip.ts";
import { Learn } from "../src/page/learn.ts";
import { Progress, verdictWords } from "../src/page/lessons.ts";
import { minutesWords } from "../src/page/teachers.ts";
import { Ticks, type Storage } from "../src/page/ticks.ts";

const NO_CHOICES = { choices: [] };

test("the replay has to be at its end after its start", () => {
  const progress = new Progress();
  const done = (): boolean => progress.complete({ action: "scrub", ...NO_CHOICES }, false);
  progress.noteFrame(8, 8);
  progress.noteFrame(0, 8);
  assert.equal(done(), false);
  progress.noteFrame(8, 8);
  assert.equal(done(), true);
});

test("the threshold has to be at both ends", () => {
  const progress = new Progress();
  const done = (): boolean => progress.complete({ action: "threshold", ...NO_CHOICES }, false);
  progress.noteThreshold({ value: "0", min: "0", max: "1" });
  assert.equal(done(), false);
  progress.noteThreshold({ value: "1", min: "0", max: "1" });
  assert.equal(done(), true);
});

test("all races have to be shown", () => {
  const progress = new Progress();
  const choices = [
    { name: "x", label: "" },
    { name: "y", label: "" },
  ];
  progress.races.add("x");
  assert.equal(progress.complete({ action: "choices", choices }, false), false);
  progress.races.add("y");
  assert.equal(progress.complete({ action: "choices", choices }, false), true);
});

test("a token has to be pinned after the cursor was moved", () => {
  const progress = new Progress();
  assert.equal(progress.complete({ action: "pin", ...NO_CHOICES }, true), false);
  progress.moved = true;
  assert.equal(progress.complete({ action: "pin", ...NO_CHOICES }, false), false);
  assert.equal(progress.complete({ action: "pin", ...NO_CHOICES }, true), true);
});

test("step 1 is a start of the replay, the last step its end", () => {
  const progress = new Progress();
  const done = (): boolean => progress.complete({ action: "scrub", ...NO_CHOICES }, false);
  progress.noteFrame(2, 8);
  progress.noteFrame(8, 8);
  assert.equal(done(), false);
  progress.noteFrame(1, 8);
  progress.noteFrame(8, 8);
  assert.equal(done(), true);
});

test("a verdict says what the check says", () => {
  assert.equal(verdictWords({ right: false, said: "Look left." }), "Not yet. Look left.");
  assert.equal(verdictWords({ right: true, said: "It is 7." }), "Right. It is 7.");
});

test("the minutes of all lessons are added up", () => {
  assert.equal(minutesWords([{ minutes: 5 }, { minutes: 7 }]), "2 lessons, 12 minutes together");
});

/** A storage with one item. */
function storageWith(item: string | null): Storage & { item: string | null } {
  return {
    item,
    getItem() {
      return this.item;
    },
    setItem(_, value) {
      this.item = value;
    },
  };
}

test("ticks are kept in a storage and restored from it", () => {
  const storage = storageWith(null);
  new Ticks(storage).keep("masks", { done: true, right: false });
  const progress = new Progress();
  new Ticks(storage).restore("masks", progress);
  assert.deepEqual([progress.done, progress.right], [true, false]);
});

test("ticks of two tabs are kept side by side", () => {
  const storage = storageWith(null);
  const [one, other] = [new Ticks(storage), new Ticks(storage)];
  for (const tab of [one, other])
    for (const key of ["masks", "drift"]) tab.keep(key, { done: false, right: false });
  one.keep("masks", { done: true, right: true });
  other.keep("drift", { done: true, right: false });
  const kept = ["masks", "drift"].map((key) => {
    const progress = new Progress();
    new Ticks(storage).restore(key, progress);
    return [progress.done, progress.right];
  });
  assert.deepEqual(kept, [
    [true, true],
    [true, false],
  ]);
});

test("cleared ticks are gone", () => {
  const storage = storageWith('{"masks":{"done":true,"right":true}}');
  new Ticks(storage).clear();
  const progress = new Progress();
  new Ticks(storage).restore("masks", progress);
  assert.equal(progress.done, false);
});

test("what is not a tick is ignored, and a storage may fail", () => {
  const forbidden: Storage = {
    getItem() {
      throw new Error("forbidden");
    },
    setItem() {
      throw new Error("forbidden");
    },
  };
  for (const storage of [
    ...["", "7", "null", "[1]", '{"masks":null}', '{"masks":{"done":"yes"}}'].map(storageWith),
    forbidden,
    null,
  ]) {
    const ticks = new Ticks(storage);
    const progress = new Progress();
    ticks.restore("masks", progress);
    assert.equal(progress.done, false);
    ticks.keep("masks", { done: true, right: true });
    ticks.restore("masks", progress);
    assert.equal(progress.right, true);
  }
});

/** Two steps, one layer, a prompt of one token, three answer tokens: the second comes first. */
const FRAME = {
  prompt: 1,
  positions: 4,
  steps: 2,
  layers: 1,
  revealed: { shape: [4], values: Int32Array.of(-1, -1, 0, 1) },
};

/** Drifts of V in step 2 as codes. */
function driftOf(codes: number[]): StripDrift {
  const values = Uint8Array.from(codes);
  return { cells: { shape: [1, 4], values } };
}

/** All positions but the last one have drifted far. */
const DRIFT = driftOf([200, 200, 200, 0]);

/** The strip of step 2, whose newest token is at position 2. */
function stripOf(drift: StripDrift, attention: Attention): StripCell[] {
  return stripCells(FRAME, drift, { layer: 0 }, 2, attention);
}

test("the strip marks the answer tokens whose V drifted, on both sides of the newest", () => {
  const cells = stripOf(DRIFT, "bidirectional");
  assert.deepEqual(
    cells.map(({ position, side, moved }) => [position, side, moved]),
    [
      [1, "before", true],
      [2, "newest", true],
      [3, "after", false],
    ],
  );
});

test("a row that was not evaluated has not drifted", () => {
  const cells = stripOf(driftOf([255, 255, 255, 255]), "bidirectional");
  assert.ok(cells.every(({ moved }) => !moved));
});

test("causal attention keeps V of the tokens before the newest", () => {
  const codes = stripOf(DRIFT, "causal").map(({ code }) => code);
  assert.deepEqual(codes, [null, 200, 0]);
});

test("the newest token is the one of the step before", () => {
  assert.deepEqual([newestAt(FRAME, 0), newestAt(FRAME, 1), newestAt(FRAME, 5)], [-1, 2, -1]);
});

test("the strip tells the counts, and that causal attention keeps what is before", () => {
  const words = (step: number, attention: Attention): string =>
    stripWords(FRAME, { step, layer: 0 }, stripOf(DRIFT, attention), attention);
  assert.equal(
    words(1, "bidirectional"),
    "Lane A, step 2, layer 1: answer token 2 had just been committed. 1 answer token before it and 1 from it on drifted by more than 0.001.",
  );
  assert.match(words(1, "causal"), /so 0 of them drift\.$/);
  assert.match(words(0, "causal"), /no token was committed in the previous step\.$/);
});

test("what is forgotten of a lesson is not done again by the token that is still pinned", () => {
  const entry = { lesson: { action: "pin", ...NO_CHOICES }, progress: new Progress() };
  const pinned = { lane: "b", step: 3, layer: 0, position: 9 };
  const race = {
    inspector: { panels: {}, cursor: { pinned, held: true } },
    transport: { frames: () => ({ a: 0, b: 0 }) },
    store: { lanes: { a: { rows: [] } } },
  };
  const made: unknown = Object.assign(Object.create(Learn.prototype) as object, {
    ...{ entries: [entry], now: entry, race, start: "", laneB: "dual" },
    ticks: new Ticks(null),
    drawMarks: () => undefined,
  });
  const learn = made as { note: () => void; forget: () => void };
  const done = (): boolean => {
    learn.note();
    return entry.progress.done;
  };
  assert.equal(done(), true);
  learn.forget();
  assert.equal(done(), false);
  assert.deepEqual([...entry.progress.races], ["dual"], "the race that is shown counts");
  pinned.step = 4;
  assert.equal(done(), true);
});
