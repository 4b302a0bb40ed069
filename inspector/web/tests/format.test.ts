import assert from "node:assert/strict";
import test from "node:test";
import { duration, number, percent, roughTime } from "../src/base/format.ts";

test("a percentage has fewer digits the larger it is", () => {
  const found = [0, 0.00034, 0.0123, 0.256, 1].map((share) => percent(share));
  assert.deepEqual(found, ["0 %", "0.03 %", "1.2 %", "26 %", "100 %"]);
});

test("only all is 100 %", () => {
  const found = [0.994, 0.997, 255 / 256, 0.99999].map((share) => percent(share));
  assert.deepEqual(found, ["99 %", "99.7 %", "99.6 %", "99.9 %"]);
});

test("a number below 1 is not rounded to 0", () => {
  const found = [0, 0.0042, -0.0179, 0.35, 0.999, 1.26].map((one) => number(one));
  assert.deepEqual(found, ["0", "0.0042", "-0.018", "0.35", "1", "1.3"]);
});

test("a number with a given number of digits is not rounded to 0 either", () => {
  const found = [0, 0.00042, -0.0004, 0.0006, 1.2346, 2].map((one) => number(one, 3));
  assert.deepEqual(found, ["0", "0.00042", "-0.0004", "0.001", "1.235", "2"]);
});

test("an unknown share and an unknown time are a dash", () => {
  assert.deepEqual([percent(null), percent(NaN), percent(NaN, 1)], ["–", "–", "–"]);
  assert.deepEqual([duration(NaN), duration(Infinity), duration(0)], ["–", "–", "0 ms"]);
});

test("a short time is not rounded to 0", () => {
  const found = [0.0004, 0.03, 0.049, 0.06].map(duration);
  assert.deepEqual(found, ["0.0004 ms", "0.03 ms", "0.049 ms", "0.1 ms"]);
});

test("a time of an hour and more is in hours and minutes", () => {
  const found = [3_599_990, 3_599_996, 5_399_000, 7_199_000].map(duration);
  assert.deepEqual(found, ["3599.99 s", "1 h 0 min", "1 h 30 min", "2 h 0 min"]);
});

test("a share that is too small for its digits is not 0 and has no exponent", () => {
  const found = [1e-8, 9e-9, 1e-30].map((share) => percent(share));
  assert.deepEqual(found, ["0.000001 %", "< 0.000001 %", "< 0.000001 %"]);
});

test("a negative share is written as a positive one with its sign", () => {
  const found = [-0.5, -0.0123, -0.99999].map((share) => percent(share));
  assert.deepEqual([...found, percent(-0.8333, 1)], ["-50 %", "-1.2 %", "-99.9 %", "-83.3 %"]);
});

test("what is rounded up to the next form is in that form", () => {
  assert.deepEqual([9.94, 9.97, 999.4, 999.7].map(duration), [
    "9.9 ms",
    "10 ms",
    "999 ms",
    "1.00 s",
  ]);
  assert.deepEqual(
    [0.0994, 0.0997].map((share) => percent(share)),
    ["9.9 %", "10 %"],
  );
});

test("a number of an imported file may be smaller than any format", () => {
  assert.equal(number(1e-150), "0");
});

test("a share of one digit is 0 or 100 % only if it is", () => {
  const found = [0, 1e-6, 0.8333, 0.99999, 1].map((share) => percent(share, 1));
  assert.deepEqual(found, ["0 %", "0.0001 %", "83.3 %", "99.9 %", "100 %"]);
});

test("a wait is told in minutes from a minute and a half", () => {
  assert.deepEqual([roughTime(0.2), roughTime(89), roughTime(90)], ["1 s", "89 s", "2 min"]);
});
