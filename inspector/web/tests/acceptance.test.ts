import assert from "node:assert/strict";
import test from "node:test";
import type { PlotSpec } from "../src/figures/spec.ts";
import {
  acceptanceScatter,
  makePoints,
  scatterTitle,
  survivalWords,
} from "../src/inspect/acceptance.ts";
import type { Guided } from "../src/inspect/guided.ts";
import type { Panel } from "../src/inspect/panel.ts";
import { guiderWords } from "../src/inspect/views/guider.ts";
import { bytes, floats, ints } from "./inspected.ts";

/** Three drafted tokens, two in the first step. */
const DRAFTS = {
  draft_step: ints([3], [0, 0, 1]),
  draft_position: ints([3], [8, 9, 10]),
  draft_p_f: floats([3], [0.9, 0.8, 0.7]),
  draft_p_g: floats([3], [0.6, 0.5, 0.1]),
  verdict: bytes([3], [0, 1, 1]),
  every: 1,
};
const RULES = { names: ["accepted", "stop"] as const, accepted: ints([2], [2, 0]) };

test("both probabilities are drawn without the map of the verdicts, which is said", () => {
  const shown: PlotSpec[] = [];
  const figure = { root: { hidden: true }, show: (spec: PlotSpec) => shown.push(spec) };
  const panel = { figure: () => figure, parts: () => ({ drafts: DRAFTS }) };
  const data = { ...RULES, recorded: true } as unknown as Guided;
  acceptanceScatter(panel as unknown as Panel, data, null);
  assert.deepEqual([figure.root.hidden, shown.length], [false, 1]);
  assert.equal(shown[0].words?.(0.9, 0.6), "No verdict was read.");
});

test("an end of text that the fallback committed is no accepted token", () => {
  const points = makePoints(RULES, DRAFTS);
  assert.deepEqual(
    points.map(({ name, rows }) => [name, rows]),
    [
      ["accepted", [0, 1]],
      ["agreed, after the mismatch", []],
      ["not agreed", [2]],
    ],
  );
});

test("the title of the scatter says which steps it shows", () => {
  assert.match(scatterTitle(1), /^Probability of each drafted token: /);
  assert.match(scatterTitle(3), /^Probability of each token .* in one drafting step out of 3: /);
});

test("the share of drafts is said in a sentence, of one token and of several", () => {
  assert.equal(survivalWords(1, 1), "In 100 % of the drafts at least 1 token was accepted");
  assert.equal(survivalWords(0.5, 2), "In 50 % of the drafts at least 2 tokens were accepted");
});

test("tokens per step are of the steps that draft, and not of commit calls", () => {
  const data = {
    about: { name: "small", parameters: null, shared: true },
    rule: { guider: "small", rule: "top1", k: 2, tau: 0.5, fallback: "dlm" },
    numbers: { accepted: 5, drafted: 12, tokens: 6 },
    histogram: ints([4], [1, 0, 1, 1]),
  } as unknown as Guided;
  assert.match(
    guiderWords(data, 5, null),
    /accepted in 3 steps, 2 tokens per step including the fallback's\. 2 other steps drafted nothing\.$/,
  );
  assert.match(guiderWords(data, 3, null), /fallback's\.$/);
});
