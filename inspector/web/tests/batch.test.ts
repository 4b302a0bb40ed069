import assert from "node:assert/strict";
import test from "node:test";
import { Batch } from "../src/batch/batch.ts";
import { agreementFigure, aggregateFigures, type Choice } from "../src/batch/figures.ts";
import {
  byPrompt,
  isOver,
  type Aggregate,
  type BatchProgress,
  type Row,
  type Setting,
} from "../src/batch/messages.ts";
import { COLUMNS, runRows, settingRows } from "../src/batch/tables.ts";
import { rightWords, runWords, stateWords } from "../src/batch/words.ts";

function row(changes: Partial<Row> = {}): Row {
  return {
    prompt: 0,
    setting: 0,
    question: "1 + 1?",
    before: 0,
    known_answer: "2",
    reason: "done",
    message: "",
    text: "2",
    right: true,
    forwards: 8,
    text_forwards: 4,
    ms: 1500,
    tokens: 3,
    recomputed: 0.25,
    agreement: 0.5,
    ...changes,
  };
}

function setting(changes: Partial<Setting> = {}): Setting {
  return {
    name: "dual",
    title: "Fast-dLLM dual cache",
    runs: 2,
    failed: 1,
    pairs: 2,
    known: 2,
    right: 1,
    agreement: 0.75,
    interval: [0.5, 1],
    same_answer: 1,
    p: 0.125,
    forwards: 8,
    text_forwards: 4,
    recomputed: 0.25,
    ms: 1500,
    speed_up: 2,
    text_speed_up: null,
    tokens_per_s: 20,
    recorded: 0,
    recording_problem: "",
    ...changes,
  };
}

function progress(changes: Partial<BatchProgress> = {}): BatchProgress {
  const base = { batch: "x", state: "running", message: "", done: 1, total: 4, seconds_left: null };
  return { ...base, ...changes };
}

/** A node in a document without anything else. */
class Node {
  dataset: Record<string, string> = {};
  hidden = false;
  textContent = "";
  children: unknown[] = [];
  private readonly parts = new Map<string, Node>();
  querySelector(selector: string): Node {
    const found = this.parts.get(selector) ?? new Node();
    this.parts.set(selector, found);
    return found;
  }
  querySelectorAll(): Node[] {
    return [];
  }
  append(...nodes: unknown[]): void {
    this.children.push(...nodes);
  }
  replaceChildren(...nodes: unknown[]): void {
    this.children = nodes;
  }
  removeAttribute(): void {
    return;
  }
}

test("a new batch leaves nothing of the table of the batch before", () => {
  const document = { createElement: () => new Node(), activeElement: null };
  Object.assign(globalThis, { document });
  const root = new Node();
  const prompts = root.querySelector("[data-batch-prompts]");
  prompts.children = ["the table of the batch before"];
  const shown = Object.assign(Object.create(Batch.prototype) as object, {
    root,
    component: { props: { value: JSON.stringify(progress({ done: 0 })) } },
    progress: progress({ batch: "before" }),
    announcer: { announce: () => undefined },
    focus: { check: () => undefined },
    figures: new Map(),
    choice: { layer: 0 },
  });
  (shown as unknown as { take: () => void }).take();
  assert.equal(prompts.children.length, 1);
  assert.ok(prompts.children[0] instanceof Node);
  assert.equal(root.querySelector("[data-batch-pages]").hidden, true);
});

test("runs are grouped by prompt, and a prompt without runs is left out", () => {
  const rows = [row({ prompt: 2, setting: 1 }), row({ prompt: 0 }), row({ prompt: 2 })];
  const found = byPrompt(rows);
  assert.deepEqual(
    found.map(({ prompt }) => prompt),
    [0, 2],
  );
  assert.deepEqual(found[1].runs, [rows[2], rows[0]]);
  assert.equal(found[0].runs[1], undefined);
});

test("a batch is over unless it runs or is about to", () => {
  const states = ["new", "running", "done", "stopped", "estimated", "limit", "failed", "refused"];
  assert.deepEqual(states.filter(isOver), states.slice(2));
});

test("the state says what is done, what is next and how long the rest takes", () => {
  const told = stateWords(progress({ step: 4, seconds_left: 12 }));
  assert.equal(told, "Running. 1 of 4 runs. The next one is at step 5. About 12 s for the others.");
  const done = stateWords(progress({ state: "done", done: 4, seconds_left: 3, step: 4 }));
  assert.equal(done, "Done. 4 of 4 runs.");
  const refused = progress({
    state: "refused",
    message: "prompts: none",
    batch: "",
    total: 0,
    done: 0,
  });
  assert.equal(stateWords(refused), "Not run. prompts: none.");
  const before = { ...refused, batch: "x", total: 4, done: 4 };
  assert.equal(stateWords(before), "Not run. prompts: none. Below is the last batch.");
  assert.equal(stateWords({ ...before, state: "failed" }), "Failed. prompts: none.");
});

test("a batch says what it waits for, in the words of a race", () => {
  const layers = { done: 3, total: 32, unit: "layers", what: "m" };
  const head = "Running. 1 of 4 runs. ";
  assert.equal(
    stateWords(progress({ wait: { state: "calibrating", ...layers } })),
    head + "Preparing the cache for this model (once, not timed) … m · 9 % · 3 of 32 layers.",
  );
  assert.equal(
    stateWords(progress({ wait: { state: "lock", ahead: 0, seconds: null } })),
    head + "Waiting for another run to finish …",
  );
});

test("a run in a line names its agreement, its answer and its cost", () => {
  assert.equal(runWords(row()), "50 % same · ✓ right · 8 forwards, 1.50 s");
  assert.equal(runWords(row({ agreement: null, right: null })), "8 forwards, 1.50 s");
  assert.equal(runWords(row({ reason: "error" })), "failed");
  assert.equal(runWords(undefined), "not run");
  assert.equal(rightWords(false), "✗ wrong");
});

test("the cells of a setting are texts, with a dash where there is no figure", () => {
  const cells = Object.fromEntries(COLUMNS.map(({ head, cell }) => [head, cell(setting())]));
  assert.equal(cells.runs, "2, 1 failed");
  assert.equal(cells["95 %"], "50 % to 100 %");
  assert.equal(cells.right, "1 of 2");
  assert.equal(cells.p, "0.13");
  assert.equal(cells["a run"], "2.00×");
  assert.equal(cells["its text"], "–");
  const bare = setting({ known: 0, interval: null, p: null, ms: null });
  const dashes = COLUMNS.filter(({ cell }) => cell(bare) === "–").map(({ head }) => head);
  assert.deepEqual(dashes, ["95 %", "right", "p", "time a run", "its text"]);
});

test("files have plain numbers, a head for each column, and prompts counted from 1", () => {
  const [head, first, second] = settingRows([setting(), setting({ interval: null })]);
  assert.deepEqual(first.slice(-2), [0.5, 1]);
  assert.equal(first[head.indexOf("ms")], 1500);
  assert.equal(second[head.indexOf("agreement_low")], undefined);
  const runs = runRows([row({ prompt: 3, right: null }), row({ setting: 7 })], [setting()]);
  assert.deepEqual(runs[0].length, runs[1].length);
  assert.deepEqual(runs[1].slice(0, 3), [4, "dual", null]);
  assert.deepEqual(runs[2].slice(0, 3), [1, undefined, "true"]);
});

test("the agreement falls at the share of each prompt, and plain decoding is left out", () => {
  const rows = [0.25, 1, 0.5, null].map((agreement, prompt) =>
    row({ prompt, setting: 1, agreement }),
  );
  const spec = agreementFigure([row({ agreement: 0.1 }), ...rows], [setting(), setting()]);
  assert.equal(spec?.series.length, 1);
  assert.deepEqual(spec.series[0].xs, [0, 0.25, 0.5, 1]);
  const ys = spec.series[0].ys.map((y) => Math.round(y ?? NaN));
  assert.deepEqual(ys, [100, 67, 33, 33]);
  assert.match(String(spec.words?.(0.5, 0)), /At least 50 % .*dual 2 of 3/);
  assert.equal(agreementFigure([row()], [setting(), setting()]), null);
});

const CHOICE: Choice = { quantity: "v", part: 0, layer: 0 };

function aggregate(changes: Partial<Aggregate> = {}): Aggregate {
  return {
    name: "dual",
    problem: "",
    runs: 2,
    layers: 2,
    quantities: ["k", "v"],
    sites: ["k"],
    kinds: ["k", "v"],
    parts: ["prompt", "answer"],
    thresholds: [0.1],
    shares: [0.25, 0.5, 0.75],
    quantiles: [
      [[1, 1, 1], [1, 1, 1]], // prettier-ignore
      [[0.1, 0.2, 0.3], [null, null, null]], // prettier-ignore
    ],
    committed: [],
    accepted: [],
    ...changes,
  };
}

test("an aggregate without data has no figures", () => {
  assert.deepEqual(
    aggregateFigures(aggregate(), CHOICE, () => undefined),
    [],
  );
});

test("drifts that are all 0 have an axis", () => {
  const zero = [[[[0, 0]]], [[[0, 0]]]];
  const data = aggregate({ layers: 1, similarity: { mean: zero, sd: zero, runs: [] } });
  const figures = new Map(aggregateFigures(data, CHOICE, () => undefined));
  const y = figures.get("batch-distance")?.y;
  assert.ok(y && "from" in y);
  assert.ok(Number.isFinite(y.from) && Number.isFinite(y.to) && y.from < y.to);
});

test("a drift is drawn for the chosen quantity, with one standard deviation on both sides", () => {
  const drift = { mean: [[9, 9], [0.2, null]], sd: [[9, 9], [0.05, null]], runs: [] }; // prettier-ignore
  const [[name, spec]] = aggregateFigures(aggregate({ drift }), CHOICE, () => undefined);
  assert.equal(name, "batch-drift");
  assert.match(spec.title, /^Aggregate of 2 runs, dual: drift of V/);
  const ys = (spec.series ?? []).slice(0, 4).map((one) => one.ys);
  assert.deepEqual(ys, [
    [0.2, null],
    [0.2, null],
    [0.25, null],
    [0.2 - 0.05, null],
  ]);
  assert.equal(spec.words?.(1, 0), "Layer 1: 0.200 ± 0.050");
  assert.equal(spec.words(2, 0), "Layer 2: no data");
});

test("a share of the rows reads as all of them only if it is", () => {
  const [none, nearly] = [[[0], [0]], [[0.99996], [null]]]; // prettier-ignore
  const above = { mean: [none, nearly], sd: [none, [[0.00001], [null]]], runs: [] };
  const figures = new Map(aggregateFigures(aggregate({ above }), CHOICE, () => undefined));
  const words = figures.get("batch-counts")?.words;
  assert.equal(words?.(0, 0), "Layer 1, drift above 0.1: 99.9 % ± 0.001 % of the rows");
  assert.equal(words(0, 1), "Layer 2, drift above 0.1: no data");
});

test("lengths are shares of the steps; those of accepted drafts stand for a guided run", () => {
  const titles = [
    aggregate({ committed: [0, 3, 1] }),
    aggregate({ committed: [1], accepted: [0, 0, 4] }),
  ]
    .map((data) => aggregateFigures(data, CHOICE, () => undefined)[0][1])
    .map(({ title, series }) => [title.split(": ")[1], series?.[0].ys]);
  assert.deepEqual(titles, [
    ["tokens committed in each step, mean 1.25", [0, 75, 25]],
    ["accepted length of each draft, mean 2.00", [0, 0, 100]],
  ]);
});
