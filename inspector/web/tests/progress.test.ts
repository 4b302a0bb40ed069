import assert from "node:assert/strict";
import test from "node:test";
import { spokenWait, waitWords } from "../src/race/progress.ts";

function loading(
  done: number,
  total: number,
  what = "",
  unit = "bytes",
): { done: number; total: number; what: string; unit: string } {
  return { done, total, what, unit };
}

test("a download is told in percent and in the unit of its size", () => {
  assert.equal(waitWords(loading(1.5e9, 15.7e9, "weights")), "weights · 9 % · 1.50 of 15.7 GB");
  assert.equal(waitWords(loading(5, 10)), "50 % · 5 of 10 bytes");
});

test("forwards are counted, in words and in speech", () => {
  assert.equal(waitWords(loading(1280, 5120, "m", "forwards")), "m · 25 % · 1280 of 5120 forwards");
  assert.equal(spokenWait(loading(1280, 5120, "m", "forwards")), "25 % of 5120 forwards");
});

test("layers are counted, in words and in speech; a single one is no plural", () => {
  assert.equal(waitWords(loading(3, 32, "m", "layers")), "m · 9 % · 3 of 32 layers");
  assert.equal(spokenWait(loading(3, 32, "m", "layers")), "0 % of 32 layers");
  assert.equal(waitWords(loading(1, 1, "m", "layers")), "m · 100 % · 1 of 1 layer");
  assert.equal(spokenWait(loading(1, 1, "m", "layers")), "100 % of 1 layer");
});

test("a size that is rounded up to a unit is told in that unit", () => {
  assert.equal(waitWords(loading(999.6e6, 0)), "1.00 GB");
});

test("without a size only what is there is told, and nothing before the first byte", () => {
  assert.equal(waitWords(loading(2e6, 0, "config.json")), "config.json · 2.00 MB");
  assert.equal(waitWords(loading(0, 0, "config.json")), "config.json");
});

test("the name of what is loaded cannot hide characters", () => {
  assert.equal(waitWords(loading(0, 0, "a\u202eb")), "a⟨U+202E⟩b");
});

test("more bytes than expected are all of them", () => {
  assert.equal(waitWords(loading(30, 20)), "100 % · 30 of 20 bytes");
});

test("speech counts a download in quarters", () => {
  assert.equal(spokenWait(loading(499, 1000)), "25 % of 1.00 kB");
  assert.equal(spokenWait(loading(499, 0)), "");
  assert.equal(spokenWait(null), "");
});

test("a queue is told with the runs ahead and the longest wait", () => {
  assert.equal(waitWords({ ahead: 1, seconds: 30 }), "1 run ahead of yours · at most about 30 s");
  assert.equal(waitWords({ ahead: 2, seconds: null }), "2 runs ahead of yours · no estimate yet");
  assert.equal(waitWords({ ahead: 0, seconds: 30 }), "for at most about 30 s");
  assert.equal(waitWords({ ahead: 0, seconds: null }), "");
});
