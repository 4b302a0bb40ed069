import assert from "node:assert/strict";
import test from "node:test";
import { firstSplit, reusedBefore, splitLines, type RunFacts } from "../src/inspect/first_split.ts";
import { rowsDone, tokenRows, type RowsDone, type TokenRows } from "../src/inspect/plans.ts";
import type { Query } from "../src/inspect/slice.ts";
import type { Frame } from "../src/inspect/view.ts";
import { Lane } from "../src/race/lane.ts";
import type { LaneName } from "../src/race/messages.ts";
import { bytes, cutPart, ints } from "./inspected.ts";

const END = 99;
const NONE = (): null => null;
const UNKNOWN: RunFacts = {
  recordable: true,
  frames: {},
  done: NONE,
  candidates: NONE,
  token: NONE,
};

/** A lane of four answer tokens; each commit is place and token, one a step. */
function lane(
  name: LaneName,
  commits: [number, number][],
  canvas: Record<string, number> = {},
): Lane {
  const out = new Lane(name);
  out.begin({
    title: "",
    before: 0,
    branch: null,
    prompt: [1],
    canvas,
    given: [],
    length: 4,
    answer: 4,
    block: 4,
    record: "steps",
    mask: null,
    stop: [END],
    model: "",
    environment: "",
    vocabulary: "",
    memory: "",
    lacks: [],
  });
  commits.forEach(([place, id], step) => out.add([step, 0, 0, 5, 1, 0, 1, [place, id, 900]]));
  for (const id of [1, 2, 3, 4]) out.pieces.set(id, "t" + String(id));
  return out;
}

/** What is known of lanes of two steps, one layer, one prompt and four answer positions. */
function factsOf(plans: Partial<Record<LaneName, number[]>>): RunFacts {
  const none = ints([0], []);
  const frame: Frame = {
    level: "steps",
    lacks: [],
    narrowed: false,
    causal: false,
    positions: 5,
    prompt: 1,
    block: 4,
    layers: 1,
    first: 0,
    steps: 2,
    revealed: none,
    before: none,
    ids: none,
    sight: ints([2], [5, 5]),
    blocks: none,
    kinds: none,
    rows: none,
  };
  const part = <Part extends object>(name: LaneName, query: Query): Part => {
    const plan = (plans[name] ?? []).flatMap((byte) => [byte, byte, byte, byte]);
    const drift = { quantities: [], drift: bytes([0], []) };
    return cutPart<Part>({ frame, plan: { plan: bytes([2, 1, 4, 1], plan) }, drift }, query);
  };
  return {
    recordable: true,
    frames: { a: plans.a && frame, b: plans.b && frame },
    candidates: NONE,
    done: (name) => part<RowsDone>(name, rowsDone()),
    token: (name, position) => part<TokenRows>(name, tokenRows(position)),
  };
}

test("the first place with different tokens is found, whatever the order of the steps", () => {
  const a = lane("a", [
    [2, 3],
    [0, 1],
    [1, 2],
  ]);
  const b = lane("b", [
    [2, 4],
    [0, 1],
    [1, 4],
  ]);
  assert.equal(firstSplit(a, b)?.place, 1);
});

test("a place that one lane left masked is no split", () => {
  assert.equal(firstSplit(lane("a", [[0, 1]]), lane("b", [[1, 2]])), null);
});

test("a difference after both ends of text is no split", () => {
  const a = lane("a", [
    [0, END],
    [1, 2],
    [2, 3],
  ]);
  const b = lane("b", [
    [0, END],
    [1, 2],
    [2, 4],
  ]);
  assert.equal(firstSplit(a, b), null);
});

test("an end of text against a token is a split", () => {
  assert.equal(firstSplit(lane("a", [[0, END]]), lane("b", [[0, 1]]))?.place, 0);
});

test("equal answers are said to be equal", () => {
  assert.match(splitLines(null, UNKNOWN)[0], /^In reading order, the answers do not differ/);
  assert.match(splitLines(null, UNKNOWN, 3)[0], /only committed tokens at different steps\.$/);
});

test("a difference later than the parting of the lanes says why it is later", () => {
  const a = lane("a", [
    [1, 5],
    [2, 6],
    [0, 1],
  ]);
  const b = lane("b", [
    [2, 6],
    [1, 7],
    [0, 2],
  ]);
  const [first] = splitLines(firstSplit(a, b), UNKNOWN, 0);
  assert.match(first, /^In reading order, the answers first differ at answer token 1: /);
  assert.match(first, / Both committed it after step 1, where they diverge: a step may commit /);
});

test("a difference at the step where the lanes diverge needs no explanation", () => {
  const split = firstSplit(lane("a", [[0, 1]]), lane("b", [[0, 2]]));
  assert.doesNotMatch(splitLines(split, UNKNOWN, 0)[0], /where they diverge/);
});

test("the choices of both lanes are named, with step and confidence", () => {
  const split = firstSplit(
    lane("a", [
      [0, 1],
      [1, 2],
    ]),
    lane("b", [[1, 3]], { 0: 1 }),
  );
  assert.equal(
    splitLines(split, UNKNOWN)[0],
    "In reading order, the answers first differ at answer token 2: A committed “t2” at step 2 (confidence 0.900), B committed “t3” at step 1 (confidence 0.900).",
  );
});

test("a token that was given has no step and no confidence", () => {
  const split = firstSplit(lane("a", [[0, 1]]), lane("b", [], { 0: 2 }));
  assert.match(splitLines(split, UNKNOWN)[0], /, B was given “t2”\.$/);
});

test("without a recording, the cause ends with a request to record", () => {
  const split = firstSplit(lane("a", [[0, 1]]), lane("b", [[0, 2]]));
  assert.equal(
    splitLines(split, UNKNOWN)[1],
    "Both lanes had the same canvas at this choice. Press Record to see how the caches treated this row.",
  );
  const [, cut] = splitLines(split, { ...UNKNOWN, recordable: false });
  assert.match(cut, /\. How the caches treated this row is not recorded\.$/);
});

test("on the same canvas, the cause is what a lane reused, or the rules", () => {
  const commits: [number, number][] = [[0, 1]];
  const split = firstSplit(lane("a", [...commits, [1, 2]]), lane("b", [...commits, [1, 3]]));
  const facts = factsOf({ a: [0xf8, 0xf8], b: [0xf8, 0x08] });
  const [, cause, mine, theirs] = splitLines(split, facts);
  assert.equal(
    cause,
    "Both lanes had the same canvas at this choice, so the difference comes from values reused by lane B or from the rules for choosing tokens.",
  );
  assert.match(mine, /out of 2 times \(.*\): K 2, V 2, .*; nothing was reused\.$/);
  assert.match(theirs, /out of 2 times \(.*\): K 1, V 1, .*; the rest was reused\.$/);
  const both = splitLines(split, factsOf({ a: [0xf8, 0x08], b: [0xf8, 0x08] }))[1];
  assert.match(both, /comes from values reused by lanes A and B or from the rules for choosing /);
  const neither = splitLines(split, factsOf({ a: [0xf8, 0xf8], b: [0xf8, 0xf8] }))[1];
  assert.match(
    neither,
    /comes from the rules for choosing tokens, because no value had been reused/,
  );
});

test("with shifted logits, the row before a token is the one that predicts it", () => {
  const later: [number, number] = [1, 2];
  const split = firstSplit(lane("a", [later, [0, 1]]), lane("b", [later, [0, 3]]));
  const facts = factsOf({ a: [0xf8, 0x80], b: [0xf8, 0x40] });
  const frame = { ...(facts.frames.a as Frame), shift: 1 };
  facts.frames = { a: frame, b: frame };
  const [, , mine, theirs] = splitLines(split, facts);
  const which = "had recomputed the row before, which predicts this token, until then, out of 2";
  assert.match(mine, new RegExp(`^Lane A ${which} .*: K 2, V 2, .*; nothing was reused\\.$`));
  assert.match(theirs, new RegExp(`^Lane B ${which} .*: K 1, V 1, .*; the rest was reused\\.$`));
});

test("a commit call is no step that could have recomputed a row of the next block", () => {
  const later: [number, number] = [1, 2];
  const split = firstSplit(lane("a", [later, [0, 1]]), lane("b", [later, [0, 3]]));
  const facts = factsOf({ a: [0x80, 0xf8], b: [0x80, 0xf8] });
  const frame = { ...(facts.frames.a as Frame), sight: ints([2], [1, 5]) };
  facts.frames = { a: frame, b: frame };
  const [, , mine] = splitLines(split, facts);
  assert.match(mine, /this row until then, out of 1 .*: K 1, V 1, .*; nothing was reused\.$/);
});

test("two lanes without plans are named in the plural", () => {
  const [a, b] = [lane("a", [[0, 1]]), lane("b", [[0, 2]])];
  for (const one of [a, b]) if (one.start) one.start.lacks = ["costs"];
  const split = firstSplit(a, b);
  assert.match(
    splitLines(split, UNKNOWN)[1],
    /The files of lanes A and B do not say how this row /,
  );
  if (b.start) b.start.lacks = [];
  assert.match(splitLines(split, UNKNOWN)[1], /The file of lane A does not say how this row /);
});

test("different canvases are counted", () => {
  const split = firstSplit(
    lane("a", [
      [2, 4],
      [0, 1],
    ]),
    lane("b", [[0, 2]]),
  );
  const facts = factsOf({ a: [0xf8, 0xf8], b: [0xf8, 0xf8] });
  assert.equal(
    splitLines(split, facts)[1],
    "The canvases of the lanes differed at this choice: A knew 1 answer token and B 0, and no value had been reused before.",
  );
});

test("canvases of different lengths differ, also if the known tokens are the same", () => {
  const [a, b] = [lane("a", [[0, 1]]), lane("b", [[0, 2]])];
  b.at.push(null);
  const facts = factsOf({ a: [0xf8, 0xf8], b: [0xf8, 0xf8] });
  assert.match(
    splitLines(firstSplit(a, b), facts)[1],
    /differed at this choice: A knew 0 of 4 answer tokens and B 0 of 5, and no value /,
  );
});

test("rows that a step does not attend to are not reused", () => {
  const facts = factsOf({ a: [0xf8, 0xf0] });
  assert.equal(reusedBefore(facts, "a", 1), true);
  assert.equal(reusedBefore(factsOf({ a: [0xf0, 0xf8] }), "a", 1), false, "it fills the cache");
  const frame = facts.frames.a as Frame;
  facts.frames.a = { ...frame, sight: ints([2], [5, 4]) };
  assert.equal(reusedBefore(facts, "a", 1), false);
  facts.frames.a = { ...frame, causal: true };
  assert.equal(reusedBefore(facts, "a", 1), false);
});

test("different models and tokens set by hand are named as the cause", () => {
  const [a, b] = [lane("a", [[0, 1]]), lane("b", [[0, 2]])];
  const facts = factsOf({ a: [0xf8, 0xf8], b: [0xf8, 0xf8] });
  if (b.start) b.start.model = "another";
  const causes = splitLines(firstSplit(a, b), facts);
  assert.match(causes[1], /the same canvas at this choice, but the lanes have different models\.$/);
  const branch = lane("b", [[1, 3]], { 0: 2 });
  if (branch.start) branch.start.branch = { 0: 2 };
  assert.equal(splitLines(firstSplit(a, branch), facts)[1], "The token of lane B was set by hand.");
});

test("the bits after the last position do not count as reused", () => {
  const facts = factsOf({ a: [0xf8, 0xf0] });
  assert.equal(reusedBefore(facts, "a", 0), false);
  assert.equal(reusedBefore(facts, "a", 1), true);
});
