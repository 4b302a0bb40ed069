import assert from "node:assert/strict";
import test, { afterEach, beforeEach, mock } from "node:test";
import { Throttle } from "../src/base/throttle.ts";

beforeEach(() => mock.timers.enable({ apis: ["setTimeout"] }));
afterEach(() => mock.timers.reset());

/** Something that is done once in 1000 ms at most, and how often it was done. */
function counted(): { throttle: Throttle; times: () => number } {
  let times = 0;
  return { throttle: new Throttle(() => times++, 1000), times: () => times };
}

test("what is asked for during a period is done once, at its end", () => {
  const { throttle, times } = counted();
  for (let i = 0; i < 3; i++) throttle.ask();
  assert.equal(times(), 1);
  mock.timers.tick(999);
  assert.equal(times(), 1);
  mock.timers.tick(1);
  assert.equal(times(), 2);
  mock.timers.tick(5000);
  assert.equal(times(), 2, "nothing was asked for since");
  throttle.ask();
  assert.equal(times(), 3);
});

test("what is done in any case answers what was asked for before it", () => {
  const { throttle, times } = counted();
  throttle.ask();
  throttle.ask();
  throttle.now();
  assert.equal(times(), 2);
  mock.timers.tick(5000);
  assert.equal(times(), 2);
});
