import assert from "node:assert/strict";
import { test } from "node:test";
import { PAPER } from "../src/figures/inks.ts";
import { mapName, mapSpec, raceName, raceSpec, thinned } from "../src/race/charts.ts";
import { Lane } from "../src/race/lane.ts";
import type { LaneStart } from "../src/race/messages.ts";
import { Store } from "../src/race/store.ts";

const START: LaneStart = {
  title: "",
  before: 0,
  branch: null,
  prompt: [],
  canvas: { "3": 9 },
  given: [3],
  length: 4,
  answer: 4,
  block: 2,
  record: "off",
  mask: 0,
  stop: [],
  model: "",
  environment: "",
  vocabulary: "",
  memory: "",
  lacks: [],
};

/** Fill a lane of four places in two steps; the last place was given. */
function filled(lane: Lane): Lane {
  lane.begin(START);
  lane.add([0, 0, 0, 1, 1, 2, 10, [2, 7, 500]]);
  lane.add([1, 0, 0, 1, 1, 0, 30, [0, 7, 1000, 1, 8, 0]]);
  return lane;
}

test("the chart's name has separators in all its numbers", () => {
  const store = new Store();
  store.lanes.a.begin({ ...START, length: 3000, answer: 3000 });
  assert.match(raceName(store, { a: 0, b: 0 }), /; A 1 of 3,000 after 0 steps/);
});

test("the chart's name counts the steps before a branch, as its axis does", () => {
  const store = new Store();
  store.lanes.b.begin({ ...START, before: 5, branch: {} });
  assert.match(raceName(store, { a: 0, b: 0 }), /; B 1 of 4 after 5 steps/);
});

test("the map has a cell in the row of each token's step, up to the frame", () => {
  const { value } = mapSpec(filled(new Lane("a")), 1, 2, PAPER);
  const cells = [0, 1].map((y) => [0, 1, 2, 3].map((x) => value(x, y)));
  assert.deepEqual(cells, [
    [null, null, 100, null],
    [null, null, null, null],
  ]);
});

test("the map's key changes with a token's confidence", () => {
  const [one, other] = [filled(new Lane("a")), filled(new Lane("a"))];
  other.at[2] = { id: 7, row: 0, sure: 0.25, fixed: false };
  assert.notEqual(mapSpec(one, 2, 2, PAPER).key, mapSpec(other, 2, 2, PAPER).key);
});

test("the map is named by the tokens of the frame's step", () => {
  const lane = filled(new Lane("b"));
  const name = "Lane B: step by position, coloured by confidence";
  assert.equal(mapName(lane, 2), name + "; at step 2 token 1, 2");
  assert.equal(mapName(lane, 0), name);
});

test("the race shows all steps faintly, and those up to the frame strongly", () => {
  const store = new Store();
  filled(store.lanes.a);
  const { series, labels } = raceSpec(store, { a: 1, b: 0 }, PAPER);
  assert.deepEqual(
    series.map(({ xs, ys }) => [xs, ys]),
    [
      [
        [0, 10, 40],
        [1, 2, 4],
      ],
      [
        [0, 10],
        [1, 2],
      ],
      [[10], [2]],
    ],
  );
  assert.deepEqual(
    labels?.map(({ x, y, text }) => [x, y, text]),
    [[10, 2, "A"]],
  );
});

test("a line of many steps is thinned to what a screen shows, with both ends", () => {
  assert.deepEqual(thinned(3), [0, 1, 2]);
  const places = thinned(1025);
  assert.deepEqual([places[0], places[1], places.at(-1)], [0, 3, 1024]);
  assert.ok(places.length <= 402);
});
