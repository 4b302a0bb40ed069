import { chance } from "../src/base/format.ts";
import assert from "node:assert/strict";
import test from "node:test";
import type { Guided, GuidedStep, GuiderRule, Verdict } from "../src/inspect/guided.ts";
import { knownBefore, Ruling } from "../src/inspect/ruling.ts";
import { bytes, floats, frame, ints } from "./inspected.ts";

const NAMES: Verdict[] = [
  "accepted",
  "mismatch",
  "agreed",
  "refused",
  "fallback",
  "stop",
  "filled",
  "untold",
];
const [ACCEPTED, MISMATCH, AGREED, REFUSED, FALLBACK, STOP, FILLED, UNTOLD] = NAMES.keys();
const NONE = 255;
const END = 9;
const FRAME = frame();

interface Draft {
  verdict: number;
  rule?: Partial<GuiderRule>;
  /** Tokens accepted in the step. */
  accepted?: number;
  id?: number;
  p?: number;
  ok?: boolean;
  /** The guider's tokens: id, probability, agreement, rank, its first choice, its probability. */
  tokens?: [number, number, boolean, number, number, number][];
  shared?: boolean;
  /** Verdicts of step 2 on the four answer tokens; the third is drafted. */
  cells?: number[];
}

/** A run of which step 2 drafted position 4, answer token 3. */
function guided(draft: Draft): Guided {
  const steps = { one: ints([3], [0, 1, 1]), share: floats([3], [0, 0.5, 1]) };
  return {
    asked: true,
    about: { name: "little", parameters: 1234, shared: draft.shared ?? true },
    rule: { guider: "tiny", rule: "rel", k: 2, tau: 0.5, fallback: "dlm", ...draft.rule },
    names: NAMES,
    recorded: true,
    drafted: steps.one,
    accepted: ints([3], [0, draft.accepted ?? 1, 0]),
    fell_back: ints([3], [0, 0, 0]),
    mean: steps.share,
    histogram: steps.one,
    survival: steps.share,
    reached: steps.share,
    needed: steps.share,
    numbers: {
      ...{
        drafted: 1,
        accepted: 1,
        tokens: 1,
        straddle_loss: 0,
        forwards: 1,
        fed: 1,
        prefilled: 1,
      },
      ...{ top1: null, top2: null, top5: null, fallback_rate: null, nll: null, kl: null },
      ...{ per_forward: null, per_guider_forward: null, flops_share: null, prefill_share: null },
    },
  };
}

/** The drafts of step 2. */
function drafted(draft: Draft): GuidedStep {
  const tokens = draft.tokens ?? [[20, 0.5, true, 0, 20, 0.5]];
  const column = (i: number): number[] => tokens.map((token) => Number(token[i]));
  const size = tokens.length;
  return {
    pieces: { 10: " cat", [END]: "<end>" },
    guider_pieces: { 20: " cat", 21: " dog", 22: " c", 23: "at" },
    span: ints([1, 2], size ? [0, size - 1] : [-1, -1]),
    draft_position: ints([1], [4]),
    draft_id: ints([1], [draft.id ?? 10]),
    draft_p_f: floats([1], [0.75]),
    draft_p_g: floats([1], [draft.p ?? 0.5]),
    draft_ok: bytes([1], [Number(draft.ok ?? true)]),
    guider_id: ints([size], column(0)),
    guider_p: floats([size], column(1)),
    guider_ok: bytes([size], column(2)),
    guider_rank: ints([size], column(3)),
    guider_top: ints([size], column(4)),
    guider_top_p: floats([size], column(5)),
  };
}

function ruling(
  draft: Draft,
  position = 4,
  step = 1,
  data: GuidedStep | string = drafted(draft),
): Ruling {
  const cells = draft.cells ?? [NONE, NONE, draft.verdict, NONE];
  const facts = {
    about: guided(draft),
    frame: FRAME,
    code: (at: number, place: number): number => (at === 1 ? cells[place] : NONE),
    stops: [END],
  };
  return new Ruling(facts, data, step, position);
}

const DRAFT = "Step 2, answer token 3: the diffusion model drafts “ cat” with probability 0.750; ";
const REL = "(rule rel, k = 2, τ = 0.5).";
const REFUSAL: Draft = {
  verdict: MISMATCH,
  ok: false,
  accepted: 0,
  p: 0.125,
  tokens: [[20, 0.125, false, 1, 21, 0.75]],
};

test("an accepted token, its probabilities and the rule", () => {
  const said = "the guider gives it 0.500, its first choice. Accepted: ";
  const why = "it is one of its 2 first choices, and 0.500 is at least 0.5 × its highest, 0.500 ";
  assert.equal(ruling({ verdict: ACCEPTED }).sentence(), DRAFT + said + why + REL);
});

test("a token that is too unlikely for the guider", () => {
  const said = "the guider gives it 0.125, its second choice after “ dog” with 0.750. ";
  const why = "Not accepted, the first mismatch: 0.125 is less than 0.5 × its highest, 0.750 ";
  assert.equal(ruling(REFUSAL).sentence(), DRAFT + said + why + REL);
});

test("a token that is too far from the guider's first choice", () => {
  const far = ruling({ ...REFUSAL, tokens: [[20, 0.125, false, 7, 21, 0.75]] }).sentence();
  assert.match(far, /its sixth or lower choice after/);
  assert.match(far, /: it is not one of its 2 first choices \(rule rel/);
});

test("each rule has its own reason", () => {
  const reason = (rule: string, k = 2): string | undefined =>
    /mismatch: (.*)\.$/.exec(ruling({ ...REFUSAL, rule: { rule, k } }).sentence())?.[1];
  assert.equal(reason("top1"), "it is not the guider's first choice (rule top1)");
  assert.equal(reason("topk", 1), "it is not the first choice (rule topk, k = 1)");
  assert.equal(
    reason("rel_dlm"),
    "the diffusion model's highest probability is not more than 0.5 × its highest, 0.750 (rule rel_dlm, τ = 0.5)",
  );
});

test("a token after the mismatch names the mismatch", () => {
  const agreed = ruling({ verdict: AGREED, cells: [MISMATCH, AGREED, AGREED, NONE] }).sentence();
  assert.match(agreed, /; but an earlier token, answer token 1, was the first mismatch\.$/);
  const refused = { ...REFUSAL, verdict: REFUSED, cells: [NONE, FALLBACK, REFUSED, NONE] };
  assert.match(
    ruling(refused).sentence(),
    /; an earlier token, answer token 2, was the first mismatch\.$/,
  );
});

test("a token may agree and be beyond what a step accepts", () => {
  assert.match(
    ruling({ verdict: AGREED }).sentence(),
    /; it is beyond the number of tokens that a step may accept\.$/,
  );
});

test("the fallback says whose token was committed", () => {
  const ended = (fallback: string): string =>
    ruling({ ...REFUSAL, verdict: FALLBACK, rule: { fallback } }).sentence();
  assert.match(ended("dlm"), /the diffusion model's token was committed there \(fallback dlm\)\.$/);
  assert.match(ended("ar"), /the guider's token was committed there \(fallback ar\)\.$/);
});

test("the end of the text, accepted or forced", () => {
  const said = ruling({ verdict: STOP, id: END });
  assert.match(
    said.sentence(),
    /drafts the end of the text with .* Accepted: the end of the text: /,
  );
  const forced = ruling({ verdict: STOP, id: END, accepted: 0 });
  assert.match(forced.sentence(), /Committed by the fallback, and it ends the text: /);
});

test("other vocabularies show the guider's own tokens", () => {
  const two: Draft["tokens"] = [
    [22, 0.75, true, 0, 22, 0.75],
    [23, 0.25, false, 2, 21, 0.5],
  ];
  const said = ruling({ ...REFUSAL, shared: false, tokens: two }).sentence();
  assert.match(
    said,
    /gives it 0\.125, of which “at” is its third choice after “ dog” with 0\.500\. In the guider's tokens it is “ c” 0\.750, “at” 0\.250\./,
  );
});

test("a token of which only a part is accepted", () => {
  const tokens: Draft["tokens"] = [[20, 0.125, true, 0, 20, 0.125]];
  const said = ruling({ ...REFUSAL, tokens }).sentence();
  assert.match(said, /mismatch: the guider does not accept all of its tokens that spell it\.$/);
});

test("a token that the guider's tokens do not reach", () => {
  const said = ruling({ verdict: AGREED, tokens: [], p: NaN });
  assert.equal(
    said.sentence(),
    DRAFT + "the guider's tokens do not reach it, so it was not checked. ",
  );
  assert.match(said.short(), /guider unknown: not committed in this step$/);
});

test("the short form has both probabilities and the outcome", () => {
  assert.equal(
    ruling(REFUSAL).short(),
    "Step 2, answer token 3: “ cat”, diffusion model 0.750, guider 0.125: not accepted, the first mismatch",
  );
});

test("a drafted token that was filled in has words too", () => {
  assert.match(ruling({ verdict: FILLED }).short(), /: filled in after the end of the text$/);
});

test("without a recorded verdict, what is known is said", () => {
  const said = (cells: number[], position: number): string =>
    ruling({ verdict: NONE, cells }, position).sentence().split(": ").slice(1).join(": ");
  const cells = [NONE, NONE, NONE, UNTOLD];
  assert.equal(said(cells, 5), "drafted after the first mismatch; its verdict was not recorded.");
  assert.equal(said(cells, 3), "known before this step, so it was not drafted.");
  assert.equal(said(cells, 2), "known before this step, so it was not drafted.");
  assert.equal(said([NONE, NONE, NONE, NONE], 5), "not drafted in this step.");
});

test("a token of a step that is not there says why", () => {
  const said = ruling({ verdict: ACCEPTED }, 4, 1, "It is gone.");
  const words = "Step 2, answer token 3: It is gone.";
  assert.deepEqual([said.sentence(), said.short()], [words, words]);
});

test("the prompt is not drafted", () => {
  assert.equal(
    ruling({ verdict: ACCEPTED }, 1).sentence(),
    "The prompt is not drafted: choose an answer token.",
  );
});

test("a probability reads as 0 or 1 only if it is", () => {
  const found = [0, 0.0004, 0.0005, 0.9994, 0.9996, 1].map((p) => chance(p));
  const small = ["0.000", "below 0.001", "0.001"];
  assert.deepEqual(found, [...small, "0.999", "above 0.999", "1.000"]);
  assert.deepEqual([chance(0.0004, 4), chance(0.00004, 4)], ["0.0004", "below 0.0001"]);
});

test("a token is known after the step that commits it", () => {
  assert.deepEqual(
    [0, 1, 2].map((step) => knownBefore(FRAME, 2, step)),
    [false, true, true],
  );
  assert.deepEqual(
    [3, 5].map((position) => knownBefore(FRAME, position, 0)),
    [true, false],
  );
});
