import assert from "node:assert/strict";
import test from "node:test";
import type { Store } from "../src/race/store.ts";
import { metricText, shownRows } from "../src/race/numbers.ts";
import {
  branchWords,
  chips,
  headline,
  measuredWords,
  pill,
  ratio,
  recordWords,
  standingWords,
  stats,
  verdict,
} from "../src/race/report.ts";
import { finished, laneEnd, laneStart, raceOf, steps, summaryOf } from "./races.ts";

const NO_FRAMES = { a: 0, b: 0 };

test("a running race is told by its tokens", () => {
  const store = raceOf(steps([0], [1, 2]), steps([0]));
  assert.equal(headline(store, { a: 1, b: 0 }), "A 1 of 4 · B 0 of 4");
});

test("the share of equal tokens is rounded as everywhere, and 100 % only if all agree", () => {
  const share = (agreement: number): string =>
    chips(finished({ agreement, same_text: false, first_divergence: 3 })).at(-1) ?? "";
  assert.match(share(29 / 50), /^58 % of tokens agree/);
  assert.match(share(255 / 256), /^99.6 % of tokens agree/);
});

test("lanes of two models name both", () => {
  const store = finished();
  assert.match(measuredWords(store), /^Model tiny\./);
  if (store.lanes.b.start) store.lanes.b.start.model = "small";
  assert.match(measuredWords(store), /^Models tiny \(A\) and small \(B\)\./);
});

test("a finished race is told by its speed-up", () => {
  assert.equal(headline(finished(), NO_FRAMES), "Lane B is 2.0 times as fast");
  assert.equal(
    headline(finished({ speedup: 0.5 }), NO_FRAMES),
    "Lane B is slower: 0.5 times as fast",
  );
});

test("a ratio that rounds to 1.0 is about equal, on both sides of 1", () => {
  assert.deepEqual([1, 1.049, 0.96].map(ratio), ["about equal", "about equal", "about equal"]);
  assert.deepEqual([1.06, 0.94, 12.4].map(ratio), [
    "1.1 times as fast",
    "0.94 times as fast",
    "12 times as fast",
  ]);
});

test("lanes of equal speed are about equal", () => {
  const found = finished({ speedup: 0.98, text_speedup: 1.5 });
  assert.equal(
    headline(found, NO_FRAMES),
    "Lane B is about equal in speed; up to the end of the text 1.5 times as fast",
  );
});

test("two runs of a single forward have no ratio", () => {
  const short = "Each lane takes a single forward: too short to compare their times";
  const one = { speedup: null, forwards: [1, 1] };
  assert.equal(headline(finished(one), NO_FRAMES), short);
  const rules = { end_of_text: ["official", "fill_safe"] };
  assert.equal(
    headline(finished({ ...one, ...rules }), NO_FRAMES),
    short + ". Unequal end-of-text rules: A official, B fill_safe",
  );
  assert.equal(headline(finished({ speedup: null, forwards: [1, 2] }), NO_FRAMES), "");
});

test("lane B is not only faster if it is wrong where lane A is right", () => {
  const wrong = { right: [true, false], same_answer: false };
  assert.equal(headline(finished(wrong), NO_FRAMES), "Lane B is 2.0 times as fast, but wrong");
  assert.equal(
    headline(finished({ ...wrong, speedup: 0.5 }), NO_FRAMES),
    "Lane B is slower: 0.5 times as fast, and wrong",
  );
});

test("lane B is called wrong only where lane A is known to be right", () => {
  for (const right of [
    [false, false],
    [null, null],
    [true, true],
    [false, true],
  ]) {
    assert.equal(headline(finished({ right }), NO_FRAMES), "Lane B is 2.0 times as fast");
  }
});

test("unequal rules for the end of the text are told, also without times", () => {
  const rules = { end_of_text: ["official", "fill_safe"] };
  const words = "Unequal end-of-text rules: A official, B fill_safe";
  assert.equal(headline(finished(rules), NO_FRAMES), "Lane B is 2.0 times as fast. " + words);
  assert.equal(headline(finished({ ...rules, speedup: null }), NO_FRAMES), words);
});

test("the chips tell forwards, answers and agreement", () => {
  const store = finished({
    text_forwards: [20, 9],
    same_text: false,
    agreement: 0.876,
    first_divergence: 4,
  });
  assert.deepEqual(chips(store), [
    "16 forwards instead of 32",
    "9 instead of 20 up to the end of the text",
    "same answer: 45 ✓ right",
    "88 % of tokens agree, first difference at token 5",
  ]);
});

test("tokens of two vocabularies are not compared", () => {
  const apart = { same_vocabulary: false, agreement: null, first_divergence: null };
  const last = (same_text: boolean): string | undefined =>
    chips(finished({ ...apart, same_text })).at(-1);
  assert.equal(last(true), "the same text: the vocabularies differ");
  assert.equal(last(false), "tokens not compared: the vocabularies differ");
});

test("forwards are not compared without times", () => {
  assert.deepEqual(chips(finished({ speedup: null })), [
    "same answer: 45 ✓ right",
    "every token agrees",
  ]);
});

test("one lane alone has no chips", () => {
  assert.deepEqual(chips(finished({ numbers: ["45"] })), []);
});

test("different answers are told with the right one", () => {
  const found = { same_answer: false, numbers: ["45", null], right: [true, false] };
  assert.equal(
    verdict(summaryOf(found)),
    "answers differ: A 45 ✓, B no whole number ✗ (right: 45)",
  );
});

test("equal wrong answers are told as wrong", () => {
  const found = { numbers: ["44", "44"], right: [false, false] };
  assert.equal(verdict(summaryOf(found)), "same answer: 44 ✗ wrong (right: 45)");
});

test("without an expected answer nothing is called right", () => {
  const found = { expected: null, right: [null, null] };
  assert.equal(verdict(summaryOf(found)), "same answer: 45");
});

test("answers without numbers are told as such", () => {
  const found = { same_answer: false, numbers: [null, null], right: [false, false] };
  assert.equal(verdict(summaryOf(found)), "no whole number in either answer (right: 45)");
});

test("answers that are not numbers are not quoted", () => {
  const found = {
    expected: "a b c",
    numbers: [null, null],
    same_answer: false,
    right: [true, false],
  };
  assert.equal(verdict(summaryOf(found)), "answers differ: A ✓, B ✗");
});

test("the numbers of a lane have dashes where there is no time", () => {
  const { lanes } = raceOf(steps([0], [1]), []);
  const values = (): string[] => stats(lanes.a, 2).map(([, value]) => value);
  assert.deepEqual(values(), ["2", "2", "20 ms", "10.0 ms", "100"]);
  if (lanes.a.start) lanes.a.start.record = "layers";
  assert.deepEqual(values(), ["2", "2", "–", "–", "–"]);
});

test("a fast lane has a time per step that is not rounded to 0", () => {
  const { lanes } = raceOf([[0, 0, 1, 6, 1, 3, 0.04, [0, 10, 500]]], []);
  const values = stats(lanes.a, 1).map(([, value]) => value);
  assert.deepEqual(values.slice(2, 4), ["0.04 ms", "0.04 ms"]);
});

test("a slow lane has its time per step in seconds, and a rate below 1", () => {
  const { lanes } = raceOf([], []);
  for (const [step] of steps([0], [1]).entries())
    lanes.a.add([step, 0, 1, 6, 1, 3 - step, 40_000, [step, 10 + step, 900]]);
  const values = stats(lanes.a, 2).map(([, value]) => value);
  assert.deepEqual(values.slice(2), ["80.00 s", "40.00 s", "0.025"]);
});

test("a time per step that is rounded up to a second is in seconds", () => {
  const { lanes } = raceOf([], []);
  lanes.a.add([0, 0, 1, 6, 1, 3, 999.97, [0, 10, 900]]);
  assert.equal(stats(lanes.a, 1)[3][1], "1.00 s");
});

test("large numbers have separators everywhere", () => {
  assert.equal(ratio(30_000), "30,000 times as fast");
  const told = chips(finished({ text_forwards: [2000, 1500] }));
  assert.equal(told[1], "1,500 instead of 2,000 up to the end of the text");
});

test("a lane's label is its step, and its end at the last frame", () => {
  const { a } = raceOf(steps([0], [1]), []).lanes;
  a.end = laneEnd({ reason: "stopped" });
  assert.deepEqual(
    [0, 1, 2].map((frame) => pill(a, frame)),
    ["not started", "step 1 · partial step · 6 rows", "stopped at step 2"],
  );
});

test("what can be recorded is told only where a server is", () => {
  const store = finished();
  const frames = { a: { level: "layers" as const } };
  assert.equal(recordWords(store, frames, true), "Recorded: plans and drift of every layer.");
  const timed = { a: { level: "off" as const } };
  assert.match(recordWords(store, timed, false), /^Not recorded: .* Record runs the same settings/);
});

test("lanes that are recorded in other ways are told one by one", () => {
  const [off, layers] = [{ level: "off" as const }, { level: "layers" as const }];
  assert.equal(
    recordWords(finished(), { a: layers, b: off }, true),
    "Recorded: plans and drift of every layer (lane A). Not recorded: this run has only the tokens and rows of each step (lane B).",
  );
  const narrow = { ...layers, narrowed: true };
  assert.equal(
    recordWords(finished(), { a: narrow, b: narrow }, true),
    "Recorded: plans and the chosen part of the drift.",
  );
  const plans = { a: { level: "steps" as const } };
  assert.match(recordWords(finished(), plans, true), /^Recorded: plans and candidates /);
});

test("a run that was stopped cannot be recorded, and the page says why", () => {
  const store = finished();
  store.state = "stopped";
  store.lanes.b.end = laneEnd({ reason: "stopped" });
  assert.equal(
    recordWords(store, {}, false),
    "Only whole runs can be recorded, and this one was not run to its end.",
  );
  const timed = { a: { level: "off" as const } };
  assert.match(recordWords(store, timed, false), /^Not recorded: .*\. Only whole runs can be /);
});

test("a run whose frame has not come is not called unrecorded", () => {
  assert.match(recordWords(finished(), {}, false), /^Record runs the same settings/);
  assert.equal(recordWords(finished(), {}, true), "");
});

test("a recorded run is not called measured", () => {
  const store = finished();
  assert.equal(
    measuredWords(store),
    "Model tiny. Measured by the engine's own clock on a machine, without drawing.",
  );
  for (const lane of store.started) lane.start.record = "probe";
  assert.equal(measuredWords(store), "Model tiny. Recorded, not timed, on a machine.");
  store.lanes.a.start!.environment = "\u202ea machine";
  assert.match(measuredWords(store), /on ⟨U\+202E⟩a machine/);
});

test("of lanes of which one was recorded, the other is not said to have been", () => {
  const store = finished();
  store.lanes.b.start!.record = "layers";
  const said = "Model tiny. Lane B was recorded, not timed; run on a machine.";
  assert.equal(measuredWords(store), said);
});

test("the table leaves out times of recorded runs and, without a guider, its numbers", () => {
  const names = (guided: boolean, timed: boolean): string[] => {
    const metrics = guided ? { guider_forwards: 3 } : {};
    return shownRows([{ end: laneEnd({ metrics }) }], timed).map(([name]) => name);
  };
  assert.ok(names(false, true).includes("total_ms") && !names(false, true).includes("guider_ms"));
  assert.ok(names(true, true).includes("guider_ms"));
  assert.ok(!names(true, false).some((name) => /_ms$|_per_s$/.test(name)));
});

test("what was recomputed is one figure, in percent; rows that entered the network are none", () => {
  const names = shownRows([], true).map(([name]) => name);
  assert.ok(names.includes("recomputed"));
  assert.ok(!names.includes("rows") && !names.includes("rows_plain"));
  assert.equal(metricText("recomputed", 0.474), "47.4 %");
  assert.equal(metricText("nfe", 32), "32");
  assert.equal(metricText("recomputed", null), "–");
});

test("a rate counts the tokens before the end of the text, and says so", () => {
  const { lanes } = raceOf(steps([0, 1], [2]), steps([0]));
  lanes.a.stops.add(12);
  assert.deepEqual(stats(lanes.a, 2).at(-1), ["Text tokens/s", "100"]);
});

/** Four steps of lane A, and a branch of it from before step 3 in which a token was changed. */
function branched(branch: Record<string, number>): Store {
  const store = raceOf(steps([0], [1], [2], [3]), [], { state: "done", parent: "parent" });
  const title = "a lane, from step 3";
  store.lanes.b.begin(laneStart({ title, before: 2, branch, canvas: { 0: 10, 1: 7 } }));
  for (const row of steps([2], [3])) store.lanes.b.add(row);
  store.lanes.b.pieces.set(7, "seven");
  return store;
}

test("a branch says where it begins, what was changed and what became of the cache", () => {
  assert.equal(
    branchWords(branched({ 1: 7, 3: -1 })),
    "Lane B continues lane A from before step 3, with answer token 2 changed to “seven”, answer token 4 masked again. " +
      "It keeps the tokens that lane A had by then, but not its cache: the cache starts empty, so step 3 reuses nothing. " +
      "Times and forwards of lane B count from there.",
  );
  assert.equal(branchWords(finished()), "");
});

test("the plan is told which lanes stand on the page only if they are a branch", () => {
  assert.equal(
    standingWords(branched({})),
    "The lanes below are a branch: A a lane; B a lane, from step 3. The next run would be:",
  );
  assert.equal(standingWords(finished()), "");
});

test("the steps of a branch count on from those of its parent", () => {
  const store = branched({ 1: 7 });
  const { b } = store.lanes;
  assert.match(pill(b, 1), /^step 3 ·/);
  assert.deepEqual(store.series("step"), [
    [0, 1, 2, 3, 4],
    [2, 3, 4],
  ]);
  assert.deepEqual(store.frames("step", { value: 3, later: Infinity }), { a: 3, b: 1 });
  assert.deepEqual(store.frames("step", { value: 1, later: Infinity }), { a: 1, b: 0 });
  assert.deepEqual(
    [0, 1].map((place) => b.knownWords(place)),
    ["known before step 3", "set by hand"],
  );
  assert.deepEqual([b.given(0), b.given(1)], [false, false]);
});
