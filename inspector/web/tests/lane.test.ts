import assert from "node:assert/strict";
import test from "node:test";
import { joined } from "../src/base/token_text.ts";
import { Lane } from "../src/race/lane.ts";
import type { LaneStart, RowMessage } from "../src/race/messages.ts";
import { END, laneStart, steps } from "./races.ts";

function laneOf(rows: RowMessage[], changes: Partial<LaneStart> = {}): Lane {
  const lane = new Lane("a");
  lane.begin(laneStart(changes));
  for (const row of rows) lane.add(row);
  for (const place of [0, 1, 2, 3]) lane.pieces.set(10 + place, `w${place}`);
  return lane;
}

test("time, tokens and forwards add up over the frames", () => {
  const lane = laneOf(steps([0], [], [2, 1]));
  assert.deepEqual(lane.clock, [0, 10, 20, 30]);
  assert.deepEqual(lane.shown, [0, 1, 1, 3]);
  assert.deepEqual(lane.forwards, [0, 1, 2, 3]);
});

test("a step is refused while one before it is missing", () => {
  const [first, second, third] = steps([0], [1], [2]);
  const lane = laneOf([first]);
  assert.equal(lane.add(third), false);
  assert.equal(lane.add(second), true);
  assert.equal(lane.rows.length, 2);
});

test("a step that is known is not counted twice", () => {
  const [first] = steps([0]);
  const lane = laneOf([first]);
  assert.equal(lane.add(first), true);
  assert.equal(lane.rows.length, 1);
});

test("a step before the start of the lane is refused", () => {
  assert.equal(new Lane("a").add(steps([0])[0]), false);
});

test("a token is masked until its step is done", () => {
  const lane = laneOf(steps([2], [0]));
  assert.equal(lane.token(0, 1), null);
  assert.deepEqual(lane.token(0, 2), { id: 10, row: 1, sure: 0.5, fixed: false });
});

test("a confidence of -1 is unknown", () => {
  const lane = laneOf([[0, 0, 1, 6, 1, 3, 10, [0, 10, -1]]]);
  assert.equal(lane.token(0, 1)?.sure, null);
});

test("signs of a lane's title that would reorder the page are written out", () => {
  assert.equal(laneOf([], { title: "a\u202eb" }).start?.title, "a⟨U+202E⟩b");
});

test("a given token is there before the first step", () => {
  assert.equal(laneOf([], { canvas: { 1: 11 } }).token(1, 0)?.fixed, true);
});

test("the text has gaps at masks and none after the last token", () => {
  const lane = laneOf(steps([0], [2]));
  assert.deepEqual(lane.text(2), ["w0", null, "w2"]);
  assert.deepEqual(lane.text(1), ["w0"]);
  assert.deepEqual(lane.text(0), []);
});

test("neighbouring tokens form one text, also if they are bytes of one character", () => {
  const lane = laneOf(steps([0, 1]));
  lane.pieces.set(10, [0xc3]);
  lane.pieces.set(11, [0xa9]);
  assert.deepEqual(lane.text(1), ["é"]);
});

test("the text ends at the first end-of-text token", () => {
  const lane = laneOf([
    [0, 0, 1, 6, 1, 2, 10, [1, END, 900, 2, 12, 900]],
    [1, 0, 1, 6, 1, 1, 10, [0, 10, 900]],
  ]);
  assert.equal(lane.firstEnd(1), 1);
  assert.deepEqual(lane.text(2), ["w0"]);
  assert.deepEqual([lane.tokensBeforeEnd(1), lane.tokensBeforeEnd(2)], [0, 1]);
});

test("tokens after the answer are not counted", () => {
  assert.equal(laneOf(steps([0, 1, 2, 3])).tokensBeforeEnd(1), 4);
  assert.equal(laneOf(steps([0, 1, 2, 3]), { answer: 3 }).tokensBeforeEnd(1), 3);
});

test("masks are counted before the first step without the given tokens", () => {
  const lane = laneOf(steps([0]), { canvas: { 3: 13 } });
  assert.deepEqual([lane.masksLeft(0), lane.masksLeft(1)], [3, 3]);
});

test("a byte that is no character is marked, and the texts beside it stay", () => {
  assert.equal(joined(["a", [0xc3], undefined, [0xa9, 0xff], "é"]), "aé\ufffdé");
});

test("a token that the settings give stays given in a branch", () => {
  const lane = new Lane("b");
  lane.begin(laneStart({ before: 2, branch: {}, canvas: { 0: 10, 1: 7 }, given: [1] }));
  assert.deepEqual([lane.given(0), lane.given(1)], [false, true]);
  assert.deepEqual(
    [0, 1, 2].map((place) => lane.canMaskAgain(place, 0)),
    [true, false, false],
  );
  assert.deepEqual([lane.knownWords(0), lane.knownWords(1)], ["known before step 3", "given"]);
});
