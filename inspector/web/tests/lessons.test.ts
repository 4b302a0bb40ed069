import assert from "node:assert/strict";
import test from "node:test";
import { movedTokens, stripWords, type StripDrift } from "../src/page/lesson_strip.ts";
import { Progress, verdictWords } from "../src/page/lessons.ts";

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

test("a wrong answer is not explained, except for a pinned cell", () => {
  const wrong = { right: false, said: "It is 7." };
  assert.equal(verdictWords(wrong, "number"), "Not yet. Look again.");
  assert.equal(verdictWords(wrong, "pin"), "Not yet. It is 7.");
  assert.equal(verdictWords({ ...wrong, right: true }, "number"), "Right. It is 7.");
});

/** Two steps, one layer, a prompt of one token and three answer tokens; the second is unmasked first. */
const FRAME = {
  prompt: 1,
  positions: 4,
  steps: 2,
  layers: 1,
  revealed: { shape: [4], values: Int32Array.of(-1, -1, 0, 1) },
};

/** Drifts of V in step 2 as codes. */
function driftOf(codes: number[]): StripDrift {
  const values = Uint8Array.of(0, 0, 0, 0, ...codes);
  return { quantities: ["v"], drift: { shape: [2, 1, 1, 4], values } };
}

/** All positions but the last one have drifted far. */
const DRIFT = driftOf([200, 200, 200, 0]);

test("drifted answer tokens are counted before the newest token and from it on", () => {
  assert.deepEqual(movedTokens(FRAME, DRIFT, { step: 1, layer: 0 }, 2), [1, 1]);
});

test("a row that was not evaluated has not drifted", () => {
  const drift = driftOf([255, 255, 255, 255]);
  assert.deepEqual(movedTokens(FRAME, drift, { step: 1, layer: 0 }, 2), [0, 0]);
});

test("the strip tells the counts, and that causal attention keeps what is before", () => {
  const words = (step: number, attention: "bidirectional" | "causal"): string =>
    stripWords(FRAME, DRIFT, { step, layer: 0 }, attention);
  assert.equal(
    words(1, "bidirectional"),
    "Step 2, layer 1: answer token 2 had just been unmasked. 1 answer token before it and 1 from it on drifted by more than 0.001.",
  );
  assert.match(words(1, "causal"), /so 0 of them drift\.$/);
  assert.match(words(0, "causal"), /no token was unmasked in the previous step\.$/);
});
