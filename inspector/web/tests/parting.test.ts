import assert from "node:assert/strict";
import test from "node:test";
import {
  exactLines,
  parting,
  partingLines,
  probeOf,
  rankedLayers,
  rankingWords,
} from "../src/inspect/parting.ts";
import type { RunFacts } from "../src/inspect/first_split.ts";
import { rowsDone, type RowsDone } from "../src/inspect/plans.ts";
import type { MeanErrors, ProbedPredictions } from "../src/inspect/probes.ts";
import { Lane } from "../src/race/lane.ts";
import type { LaneName, LaneStart } from "../src/race/messages.ts";
import { cutPart, floats, frame, ints, planOf, type SitePlan } from "./inspected.ts";
import { laneEnd, laneStart } from "./races.ts";

const UNREAD = (): null => null;
const UNKNOWN: RunFacts = {
  recordable: true,
  frames: {},
  done: UNREAD,
  candidates: UNREAD,
  token: UNREAD,
};
const [ATTENTION, NONE] = [2, NaN];

/** A lane whose steps commit pairs of place and id. */
function lane(name: LaneName, steps: [number, number][][], changes: Partial<LaneStart> = {}): Lane {
  const out = new Lane(name);
  out.begin(laneStart(changes));
  steps.forEach((commits, step) => {
    const flat = commits.flatMap(([place, id]) => [place, id, 900]);
    out.add([step, 0, 0, 6, 1, 0, 10, flat]);
  });
  for (const id of [1, 2, 3, 4]) out.pieces.set(id, "t" + String(id));
  out.end = laneEnd();
  return out;
}

function linesOf(a: Lane, b: Lane, facts: RunFacts = UNKNOWN): string[] {
  return partingLines(parting(a, b), a, b, facts);
}

test("the lanes diverge at the first step that commits other tokens, not at the first place", () => {
  const a = lane("a", [[[3, 1]], [[2, 2]], [[0, 3]]]);
  const b = lane("b", [[[3, 1]], [[2, 4]], [[0, 1]]]);
  assert.equal(parting(a, b)?.step, 1);
  assert.equal(
    linesOf(a, b)[0],
    "In time, the lanes diverge at step 2: A commits “t2” (answer token 3); B commits “t4” (answer token 3).",
  );
});

test("other places part the lanes too, and the first different token is named", () => {
  const a = lane("a", [[[0, 1]], [[2, 2]], [[1, 3]]]);
  const b = lane("b", [[[2, 3]], [[0, 1]], [[1, 4]]]);
  const [when, token] = linesOf(a, b);
  assert.match(when, /^In time, the lanes diverge at step 1: A commits “t1” \(answer token 1\); B/);
  assert.match(token, /^Before that step both lanes had the same canvas/);
  const late = lane("b", [[[2, 2]], [[0, 1]], [[3, 4]], [[1, 4]]]);
  const early = lane("a", [[[0, 1]], [[2, 2]], [[3, 3]], [[1, 3]]]);
  assert.equal(
    linesOf(early, late)[1],
    "Of the tokens that differ, answer token 4 was committed first: “t3” in A (step 3), “t4” in B (step 3).",
  );
});

test("the order of the tokens within a step does not matter", () => {
  const a = lane("a", [[[0, 1], [1, 2]]]); // prettier-ignore
  const b = lane("b", [[[1, 2], [0, 1]]]); // prettier-ignore
  assert.equal(parting(a, b), null);
  assert.match(linesOf(a, b)[0], /the lanes do not diverge/);
});

test("a lane that has ended is said to have ended", () => {
  const [a, b] = [lane("a", [[[0, 1]], [[1, 2]]]), lane("b", [[[0, 1]]])];
  assert.match(linesOf(a, b)[0], /at step 2: A commits “t2” \(answer token 2\); B has ended\.$/);
});

test("steps after the last one of a lane that was stopped do not part the lanes", () => {
  const [a, b] = [lane("a", [[[0, 1]], [[1, 2]]]), lane("b", [[[0, 1]]])];
  b.end = laneEnd({ reason: "stopped" });
  assert.equal(parting(a, b), null);
  assert.match(linesOf(a, b)[0], /the same tokens at each step that both took\.$/);
  b.end = null;
  assert.equal(parting(a, b), null);
});

test("a branch is compared by the steps of the whole run", () => {
  const a = lane("a", [[[0, 1]], [[1, 2]], [[2, 3]]]);
  const b = lane("b", [[[1, 2]], [[2, 4]]], { before: 1, branch: {}, canvas: { 0: 1 } });
  assert.equal(parting(a, b)?.step, 2);
  assert.match(linesOf(a, b)[0], /diverge at step 3: A commits “t3”/);
});

test("a token that was changed by hand is where a branch parts", () => {
  const a = lane("a", [[[0, 1]], [[1, 2]]]);
  const b = lane("b", [[[1, 2]]], { before: 1, branch: { 0: 4, 2: -1 }, canvas: { 0: 4 } });
  assert.deepEqual(linesOf(a, b), [
    "In time, the lanes diverge at the branch, before step 2: answer token 1 was changed to “t4”, answer token 3 was masked again by hand.",
  ]);
});

test("lanes with answers of different lengths do not have the same canvas", () => {
  const [a, b] = [lane("a", [[[0, 1]], [[1, 2]]]), lane("b", [[[0, 1]], [[1, 3]]])];
  const { length } = b.at;
  b.at.push(null);
  assert.equal(
    linesOf(a, b)[1],
    `Before that step both lanes knew the same tokens, but A has ${length} answer tokens and B ${length + 1}, so they can diverge without any reuse.`,
  );
});

test("the cause is what a lane reused, or else the rules", () => {
  const [a, b] = [lane("a", [[[0, 1]], [[1, 2]]]), lane("b", [[[0, 1]], [[1, 3]]])];
  const cause = (frames: RunFacts["frames"], spare?: SitePlan, where = "b"): string => {
    const done = (name: LaneName): RowsDone => {
      const plan = planOf((where.includes(name) && spare) || (() => true));
      return cutPart<RowsDone>({ frame: frame(), plan }, rowsDone());
    };
    return linesOf(a, b, { ...UNKNOWN, frames, done })[1];
  };
  const both = { a: frame(), b: frame() };
  assert.match(cause(both), /is their rules for choosing tokens\.$/);
  assert.match(
    cause(both, (step) => step === 0),
    /values that lane B reused or their rules/,
  );
  assert.match(
    cause(both, (step) => step === 0, "ab"),
    /values that lanes A and B reused or their rules/,
  );
  assert.match(cause({ a: frame() }), /Record and probe that step/);
  const [, cut] = linesOf(a, b, { ...UNKNOWN, recordable: false });
  assert.match(cut, /Which layer has an error in it is not recorded\.$/);
});

/** One probed step, the third one. */
const PROBED = { step: ints([1], [2]) };
const EXACT: ProbedPredictions = {
  position: ints([2], [4, 5]),
  tv: floats([2], [0.5, 0.25]),
  top: ints([2, 2], [1, 2, 3, 3]),
  pieces: { 1: "a", 2: "b", 3: "c" },
};

/** The errors of a probed step; `means` are by layer and site. */
function errors(means: number[][]): MeanErrors[] {
  return means[0].map((_, site) => ({
    mean: floats(
      [1, means.length],
      means.map((row) => row[site]),
    ),
  }));
}

test("layers are ranked by their error at a site, those without data last", () => {
  const data = errors([
    [0, 0, 0.01, 0.02],
    [0.5, 0.4, NONE, NONE],
    [0.1, 0.1, 0.3, 0.01],
  ]);
  const order = (site: number): number[] => rankedLayers(data, 0, site).map(({ layer }) => layer);
  assert.deepEqual(order(ATTENTION), [2, 0, 1]);
  assert.deepEqual(order(0), [1, 2, 0]);
  const words = rankingWords(lane("b", []), rankedLayers(data, 0, ATTENTION), ATTENTION);
  assert.match(words, /^Lane B: the first layer with an error is layer 1;/);
  assert.match(words, /of the attention output is largest in layer 3, 0\.30\.$/);
});

test("small errors are not said to be none", () => {
  const said = (size: number): string => {
    const ranked = rankedLayers(errors([[0, size, 0, NONE]]), 0, ATTENTION);
    return rankingWords(lane("a", []), ranked, ATTENTION);
  };
  assert.equal(said(0), "Lane A: no layer has an error at that step.");
  assert.equal(said(5e-5), "Lane A: no layer has an error above 0.0001 at that step.");
});

test("layers without a recorded error are not said to have none", () => {
  const said = (...means: number[]): string => {
    const found = errors(means.map((mean) => [NONE, NONE, mean, NONE]));
    const ranked = rankedLayers(found, 0, ATTENTION);
    return rankingWords(lane("a", []), ranked, ATTENTION);
  };
  assert.equal(said(NONE, NONE), "Lane A: no error was recorded at that step.");
  assert.equal(said(NONE, 0), "Lane A: no recorded layer has an error at that step.");
  assert.match(said(NONE, 0.5), /^Lane A: the first recorded layer with an error is layer 2;/);
  assert.match(said(0.5, NONE), /^Lane A: the first layer with an error is layer 1;/);
});

test("the probe of a branch is found by the step of the whole run", () => {
  const data = PROBED;
  assert.equal(probeOf(data, lane("b", []), 2), 0);
  assert.equal(probeOf(data, lane("b", [], { before: 4 }), 6), 0);
  assert.equal(probeOf(data, lane("b", []), 1), -1);
  assert.equal(probeOf(null, lane("b", []), 2), -1);
});

test("the exact pass's choice is named where the lanes diverge, and nowhere else", () => {
  const found = { step: 2, a: [{ place: 1, id: 2 }], b: [{ place: 1, id: 1 }], edits: [] };
  assert.deepEqual(exactLines(found, lane("b", []), EXACT, 3), [
    "Lane B, answer token 2: most likely in the run “a”, in the exact pass “b” (total variation 0.500).",
  ]);
});
