import assert from "node:assert/strict";
import test from "node:test";
import { Announcer, taskNews } from "../src/base/announcer.ts";

test("progress is announced every ten seconds, and the end at once", (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const box = { textContent: "" } as Element;
  let [state, words, now] = ["running", "1 of 40", 5000];
  const announcer = new Announcer(
    box,
    () => taskNews(state, () => words),
    () => now,
  );
  const pass = (ms: number): void => {
    now += ms;
    t.mock.timers.tick(ms);
  };
  const heard: (string | null)[] = [];
  const hear = (): number => heard.push(box.textContent);
  announcer.announce();
  hear();
  words = "2 of 40";
  announcer.announce();
  pass(9999);
  hear();
  pass(1);
  hear();
  [state, words] = ["done", "Done."];
  announcer.announce();
  hear();
  assert.deepEqual(heard, ["1 of 40", "1 of 40", "2 of 40", "Done."]);
});
