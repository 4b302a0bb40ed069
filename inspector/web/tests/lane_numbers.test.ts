import assert from "node:assert/strict";
import test from "node:test";
import {
  answerRows,
  branchNumberWords,
  numberRows,
  ratioText,
} from "../src/inspect/lane_numbers.ts";
import { Lane, started, type StartedLane } from "../src/race/lane.ts";
import type { LaneName, Summary } from "../src/race/messages.ts";

function lane(name: LaneName, metrics: Record<string, number | null>): StartedLane {
  const out = new Lane(name);
  out.begin({
    title: "title of " + name,
    before: 0,
    branch: null,
    prompt: [],
    canvas: {},
    given: [],
    length: 0,
    answer: 0,
    block: 1,
    record: "off",
    mask: null,
    stop: [],
    model: "",
    environment: "",
    vocabulary: "",
    memory: "",
    lacks: [],
  });
  out.end = { reason: "done", message: "", text: "", metrics };
  assert.ok(started(out));
  return out;
}

function row(label: string, rows: string[][]): string[] | undefined {
  return rows.find(([first]) => first === label);
}

test("a ratio is B by A; it is unknown if A is 0", () => {
  assert.deepEqual([ratioText(4, 2), ratioText(0, 2), ratioText(4, null)], ["0.500×", "–", "–"]);
});

test("a large ratio is written out", () => {
  assert.deepEqual(
    [ratioText(1, 1024), ratioText(2, 1999), ratioText(2, 3)],
    ["1,024×", "1,000×", "1.50×"],
  );
});

test("the heading names both lanes", () => {
  const rows = numberRows(lane("a", {}), lane("b", {}), true);
  assert.deepEqual(rows[0], ["Measure", "A: title of a", "B: title of b", "B / A"]);
});

test("a share is shown in percent, and only all is 100 %", () => {
  const shares = (a: number, b: number): string[] | undefined => {
    const rows = numberRows(lane("a", { recomputed: a }), lane("b", { recomputed: b }), true);
    return row("Token-layers recomputed", rows)?.slice(1);
  };
  assert.deepEqual(shares(1, 0.25), ["100 %", "25 %", "0.250×"]);
  assert.deepEqual(shares(0.9997, 0), ["99.9 %", "0 %", "0.00×"]);
});

test("recorded runs show no times", () => {
  const rows = numberRows(lane("a", { total_ms: 5 }), lane("b", { total_ms: 5 }), false);
  assert.deepEqual(row("Engine time, ms", rows)?.slice(1), ["–", "–", "–"]);
});

test("the guider's measures need a guider in one of the lanes", () => {
  const label = "Guider's cache, bytes";
  assert.equal(row(label, numberRows(lane("a", {}), lane("b", {}), true)), undefined);
  const rows = numberRows(lane("a", {}), lane("b", { guider_forwards: 3 }), true);
  assert.ok(row(label, rows));
});

const SUMMARY: Summary = {
  speedup: null,
  text_speedup: null,
  forwards: [32, 32],
  text_forwards: [20, 10],
  end_of_text: ["official", ""],
  expected: "26",
  numbers: ["26", null],
  right: [true, false],
  agreement: 0.5,
  first_divergence: 3,
  same_text: false,
  same_answer: false,
  apart: "",
  same_vocabulary: true,
};

test("the answers are judged, and compared up to the end of the text", () => {
  assert.deepEqual(answerRows(SUMMARY), [
    ["End-of-text rule", "official", "–", ""],
    ["Forwards until the text is complete", "20", "10", "0.500×"],
    ["Tokens before the end that agree", "", "50 %", ""],
    ["Number answered", "26 ✓ right", "no whole number ✗ wrong", ""],
  ]);
});

test("an agreement is 100 % only if all tokens agree, as in the chips", () => {
  const [, , row] = answerRows({ ...SUMMARY, agreement: 0.9996 });
  assert.equal(row[2], "99.9 %");
});

test("an answer that is a text is judged and has no number", () => {
  const found = { ...SUMMARY, expected: "3 1 2", numbers: [null, null] };
  assert.deepEqual(answerRows(found).at(-1), ["Answer", "✓ right", "✗ wrong", ""]);
  const negative = { ...SUMMARY, expected: "-5", numbers: [null, "-5"], right: [false, true] };
  assert.deepEqual(answerRows(negative).at(-1), [
    "Number answered",
    "no whole number ✗ wrong",
    "-5 ✓ right",
    "",
  ]);
});

test("a single lane has no rows about the answers", () => {
  assert.deepEqual(answerRows({ ...SUMMARY, numbers: ["26"] }), []);
});

test("the numbers of an imported branch are said to be those of its own steps", () => {
  const lanes = [lane("a", {}), lane("b", {})];
  assert.equal(branchNumberWords(lanes, false), "");
  Object.assign(lanes[1].start, { before: 2, branch: {} });
  const words = "Lane B is a branch. Its numbers cover its steps from 3 on. ";
  assert.equal(branchNumberWords(lanes, false), words);
  assert.match(branchNumberWords(lanes, true), /^Lane B continues from a step of lane A/);
});
