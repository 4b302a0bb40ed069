import assert from "node:assert/strict";
import { test } from "node:test";
import { gridShape, laneCells } from "../src/race/film/lane_cells.ts";
import { fitted, type Measure, type Shape } from "../src/race/film/shapes.ts";
import { captionWords, tellingFrames, filmStrip } from "../src/race/film/strip.ts";
import { framesAtShare, shareAt } from "../src/race/film/video.ts";
import { clockWords, SIZE, videoFrame } from "../src/race/film/video_frame.ts";
import { started, type StartedLane } from "../src/race/lane.ts";
import type { Store } from "../src/race/store.ts";
import { raceOf, steps } from "./races.ts";

const measure: Measure = (text, { size }) => text.length * size * 0.5;

/** A race in which lane A takes four steps and lane B two, of 10 ms each. */
function race(): Store {
  const store = raceOf(steps([0], [1], [2], [3]), steps([1, 0], [2, 3]), { state: "done" });
  for (const { pieces } of store.started) for (const i of [0, 1, 2, 3]) pieces.set(10 + i, `w${i}`);
  return store;
}

function laneA({ lanes }: Store): StartedLane {
  assert.ok(started(lanes.a));
  return lanes.a;
}

function texts(shapes: readonly Shape[]): string[] {
  return shapes.flatMap((shape) => (shape.text === undefined ? [] : [shape.text]));
}

test("a video stands still at its start and at its end", () => {
  assert.deepEqual(
    [0, 0.5, 4.25, 8, 10].map((elapsed) => shareAt(elapsed, 10)),
    [0, 0, 0.5, 1, 1],
  );
});

test("a video shows the frames of both lanes at the same time of the engine", () => {
  const store = race();
  assert.deepEqual(framesAtShare(store, "time", 0), { a: 0, b: 0 });
  assert.deepEqual(framesAtShare(store, "time", 0.5), { a: 2, b: 2 });
  assert.deepEqual(framesAtShare(store, "time", 0.3), { a: 1, b: 1 });
  assert.deepEqual(framesAtShare(store, "time", 1), { a: 4, b: 2 });
});

test("the clock is that of the lane that takes longer", () => {
  assert.equal(clockWords(race(), { a: 3, b: 2 }), "30 ms");
});

test("a picture holds titles, clock and revealed tokens, and nothing outside", () => {
  const shapes = videoFrame(race(), { a: 2, b: 1 }, measure);
  const said = texts(shapes);
  for (const words of ["a lane", "another lane", "20 ms", "w0"]) assert.ok(said.includes(words));
  assert.equal(said.filter((text) => text === "w1").length, 2);
  assert.ok(!said.includes("w3"));
  for (const shape of shapes) {
    const right = shape.x + (shape.text === undefined ? shape.width : 0);
    const low = shape.y + (shape.text === undefined ? shape.height : 0);
    assert.ok(shape.x >= 0 && right <= SIZE.width && low <= SIZE.height);
  }
});

test("a token that the lanes disagree on is outlined", () => {
  const store = race();
  store.lanes.b.at[1] = { id: 77, row: 0, sure: 1, fixed: false };
  const box = { x: 0, y: 0, width: 400, height: 200 };
  const shown = { lane: laneA(store), frame: 2, other: store.lanes.b, otherFrame: 1 };
  const boxes = laneCells(shown, box, measure).filter((shape) => shape.text === undefined);
  assert.deepEqual(
    boxes.map(({ thick }) => thick),
    [1, 2, 1, 1],
  );
});

test("tokens of two vocabularies are not compared", () => {
  const store = race();
  store.lanes.b.at[1] = { id: 77, row: 0, sure: 1, fixed: false };
  const [lane, other] = store.started;
  lane.start.vocabulary = "one";
  other.start.vocabulary = "another";
  const box = { x: 0, y: 0, width: 400, height: 200 };
  const cells = laneCells({ lane, frame: 2, other, otherFrame: 1 }, box, measure);
  assert.ok(cells.every((shape) => shape.text !== undefined || shape.thick === 1));
});

test("the steps of a branch are counted with those before it", () => {
  const store = race();
  const [a, b] = store.started;
  a.start.record = b.start.record = "layers";
  b.start.before = 7;
  assert.match(captionWords(store, b, 2), /^step 9 · 4 of 4 tokens/);
  assert.equal(clockWords(store, { a: 4, b: 2 }), "step 9");
});

test("a branch says from which step its time and its forwards are counted", () => {
  const store = race();
  const [, b] = store.started;
  b.start.before = 7;
  const frames = { a: 4, b: 2 };
  const strip = (): string[] => texts(filmStrip(store, [frames], measure).shapes);
  const video = (): string[] => texts(videoFrame(store, frames, measure));
  assert.ok(strip().includes("a lane") && strip().includes("another lane (time from step 8 on)"));
  assert.ok(video().includes("40 ms · 4 forwards · 0 masks left"));
  assert.ok(video().includes("20 ms · 2 forwards (from step 8 on) · 0 masks left"));
  b.start.record = "layers"; // without times, the steps are counted with those before
  assert.ok(strip().includes("another lane"));
  assert.ok(video().includes("2 forwards (from step 8 on) · 0 masks left"));
});

test("the legend of a film strip is within it, also beside a single moment", () => {
  const { shapes, width } = filmStrip(race(), [{ a: 4, b: 2 }], measure);
  for (const shape of shapes) {
    if (shape.text !== undefined && !shape.centred)
      assert.ok(shape.x + measure(shape.text, shape) <= width, shape.text);
  }
});

test("a long answer takes as many columns as make its cells fit", () => {
  for (const count of [16, 48, 256, 1024]) {
    const { columns, height } = gridShape(count, 400);
    assert.ok(Math.ceil(count / columns) * height < 400.001);
  }
  assert.equal(gridShape(48, 400).columns, 8);
});

test("a text is cut to a width", () => {
  assert.equal(fitted("abcdef", 20, { size: 10 }, measure), "abc…");
  assert.equal(fitted("abcd", 20, { size: 10 }, measure), "abcd");
  assert.equal(fitted("abcd", 4, { size: 10 }, measure), "");
});

test("a film strip ends with the last frames and has a caption for each panel", () => {
  const store = race();
  const moments = tellingFrames(store, "time", 3);
  assert.deepEqual(moments, [
    { a: 1, b: 1 },
    { a: 2, b: 2 },
    { a: 4, b: 2 },
  ]);
  const said = texts(filmStrip(store, moments, measure).shapes);
  assert.ok(said.includes("step 2 · 20 ms · 2 of 4 tokens"));
  assert.ok(said.includes("step 4 · 40 ms · 4 of 4 tokens"));
  assert.equal(said.filter((text) => text === "step 2 · 20 ms · 4 of 4 tokens").length, 2);
  assert.ok(said.includes("lanes differ"));
});

test("of lanes that end together, all moments of a film strip are evenly spaced", () => {
  const store = raceOf(steps([0], [1], [2], [3]), steps([0], [1], [2], [3]));
  assert.deepEqual(tellingFrames(store, "step", 2), [
    { a: 2, b: 2 },
    { a: 4, b: 4 },
  ]);
});

test("a lane without steps does not hold the film strip at the start", () => {
  const moments = tellingFrames(raceOf(steps([0], [1], [2], [3]), []), "time", 2);
  assert.deepEqual(
    moments.map(({ a }) => a),
    [2, 4],
  );
});
