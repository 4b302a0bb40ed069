import assert from "node:assert/strict";
import test from "node:test";
import { Transport } from "../src/race/transport.ts";
import { Store } from "../src/race/store.ts";
import { laneStart, raceOf, steps } from "./races.ts";

/** A node of the replay bar that knows its value and hears its events. */
class Part {
  value = "time";
  disabled = false;
  textContent = "";
  private readonly heard: Record<string, () => void> = {};
  private readonly parts: Partial<Record<string, Part>> = {};

  querySelector(selector: string): Part {
    return (this.parts[selector] ??= new Part());
  }

  addEventListener(name: string, act: () => void): void {
    this.heard[name] = act;
  }

  setAttribute(): void {
    // What is said of a value is not tested here.
  }

  choose(value: string): void {
    this.value = value;
    this.heard.change();
  }

  press(): void {
    this.heard.click();
  }
}

test("a race without times is aligned by step, and the next one again as the reader chose", () => {
  const root = new Part();
  const store = raceOf(steps([0]), steps([1]));
  const bar = new Transport(root as unknown as HTMLElement, store, () => undefined);
  const choice = root.querySelector("[data-align]");
  const modes = (): string[] =>
    ["layers", "off"].map((record) => {
      store.started[1].start.record = record;
      bar.refresh();
      assert.equal(choice.value, bar.mode);
      assert.equal(choice.querySelector('[value="time"]').disabled, record === "layers");
      return bar.mode;
    });
  assert.deepEqual(modes(), ["step", "time"]);
  choice.choose("tokens");
  assert.deepEqual(modes(), ["tokens", "tokens"]);
});

test("once lane B begins without times, the lanes are aligned by step, and their ends shown", () => {
  const store = new Store();
  const a = { start: laneStart(), rows: steps([0], [1]) };
  store.take({ run: "run", state: "running", reset: true, lanes: { a } });
  const bar = new Transport(new Part() as unknown as HTMLElement, store, () => undefined);
  bar.go(10);
  assert.deepEqual([bar.mode, bar.frames().a], ["time", 1]);
  const b = { start: laneStart({ record: "layers" }) };
  store.take({ run: "run", state: "running", lanes: { b } });
  bar.refresh();
  assert.deepEqual([bar.mode, bar.follow, bar.frames().a], ["step", true, 2]);
});

test("a replay goes on from where it was when a hidden tab is shown again", () => {
  const root = new Part();
  let draw: (now: number) => void = () => undefined;
  Object.assign(globalThis, { requestAnimationFrame: (told: typeof draw) => (draw = told) });
  const slow = steps([0], [1]).map((row) => row.with(6, 5000) as typeof row); // 10 seconds
  const bar = new Transport(
    root as unknown as HTMLElement,
    raceOf(slow, steps([1])),
    () => undefined,
  );
  root.querySelector("[data-speed]").value = "1";
  const begun = performance.now();
  root.querySelector("[data-play]").press();
  draw(begun + 60_000);
  assert.deepEqual([bar.playing, bar.frames().a], [true, 0]);
});
