import assert from "node:assert/strict";
import test from "node:test";
import { noteWords, otherWords, stateWords } from "../src/race/head.ts";
import { RaceAnnouncer, sentences } from "../src/race/race_announcer.ts";
import { Store } from "../src/race/store.ts";
import { finished, laneEnd, raceOf, steps } from "./races.ts";

test("a finished race says where it was measured", () => {
  assert.equal(stateWords(finished(), false), "Finished · measured on a machine");
});

test("a recording says what it waits for as a race does, and else how far it is", () => {
  const store = finished();
  const box = { textContent: "" } as Element;
  const announcer = new RaceAnnouncer(box as HTMLElement, store, () => "");
  const message = "0 of 8 steps recorded";
  const wait = { state: "calibrating", done: 8, total: 32, unit: "layers", what: "m" };
  const recording = { run: "run", state: "recording", message, lanes: {} };
  store.take({ ...recording, wait });
  const state = "Recording: the same settings are run again, without timing; Stop ends it";
  const preparing = "Preparing the cache for this model (once, not timed) …";
  assert.equal(stateWords(store, false), `${state} · ${preparing}`);
  announcer.announce();
  assert.equal(box.textContent, `${state}. ${preparing}. 25 % of 32 layers`);
  store.take({ run: null, state: "failed", message: "no", lanes: {} });
  assert.equal(stateWords(store, false), "Not started; below: the last race · no");
  store.take(recording);
  assert.equal(stateWords(store, false), `${state} · ${message}`);
});

test("a refused request did not start, and a new one is queued", () => {
  const store = new Store();
  store.take({ run: null, state: "failed", message: "no", lanes: {} });
  assert.equal(stateWords(store, false), "Not started");
  assert.equal(stateWords(store, true), "Waiting for a place …");
});

test("a link that was refused stays so after a run", () => {
  const store = new Store();
  store.take({ run: null, state: "invalid_link", message: "no", lanes: {} });
  assert.deepEqual([store.refusal, store.invalidLink], [true, true]);
  store.take({ run: "a", state: "imported", reset: true, lanes: {} });
  assert.deepEqual([store.refusal, store.invalidLink], [false, true]);
  const other = new Store();
  other.take({ run: null, state: "failed", message: "no", lanes: {} });
  assert.deepEqual([other.refusal, other.invalidLink], [true, false]);
});

test("a refusal names what the lanes still show, and not where that was measured", () => {
  const store = finished();
  store.take({ run: null, state: "failed", message: "no", lanes: {} });
  assert.equal(stateWords(store, false), "Not started; below: the last race");
  store.state = "example";
  assert.equal(stateWords(store, false), "Not started; below: the recorded example");
});

test("a refusal while a run goes on does not call it the last race", () => {
  const store = raceOf(steps([0]), []);
  for (const [state, words] of [
    ["running", "goes on"],
    ["paused", "is paused"],
  ]) {
    store.take({ run: "run", state, lanes: {} });
    store.take({ run: null, state: "failed", message: "no", lanes: {} });
    assert.equal(stateWords(store, false), `Not started; the earlier run ${words}`);
  }
});

test("the note is the server's message, else that of a lane that failed", () => {
  const store = raceOf(steps([0]), []);
  assert.equal(noteWords(store), "");
  store.lanes.b.end = laneEnd({ reason: "failed", message: "it broke" });
  assert.equal(noteWords(store), "it broke");
  store.message = "no";
  assert.equal(noteWords(store), "no");
});

test("why the parent of a branch failed is no note on the branch", () => {
  const store = raceOf(steps([0]), steps([0]), { parent: "other", state: "done" });
  store.lanes.a.end = laneEnd({ reason: "failed", message: "it broke" });
  store.lanes.b.end = laneEnd();
  assert.equal(noteWords(store), "");
});

test("another question of the settings is told", () => {
  const store = finished();
  store.question = "How many?";
  assert.match(otherWords(store, "How much?"), /another problem: How many\?$/);
  assert.equal(otherWords(store, "How many?"), "");
  assert.equal(otherWords(store, null), "");
});

test("characters of an imported run that reorder a text are written out", () => {
  const store = finished();
  store.question = "\u202eHow many?";
  assert.match(otherWords(store, "How much?"), /: ⟨U\+202E⟩How many\?$/);
  store.lanes.a.end = laneEnd({ reason: "failed", message: "it \u202ebroke" });
  assert.equal(noteWords(store), "it ⟨U+202E⟩broke");
});

test("what is said has one full stop between its parts, and none for an empty one", () => {
  const said = sentences(["Not started", "The prompt is too long.", "", "A 1 of 4"]);
  assert.equal(said, "Not started. The prompt is too long. A 1 of 4");
});
