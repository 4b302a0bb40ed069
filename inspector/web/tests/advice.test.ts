import assert from "node:assert/strict";
import { test } from "node:test";
import { frontFigure } from "../src/advice/figures.ts";
import { points, type Advice, type Measured } from "../src/advice/messages.ts";
import { settingRows } from "../src/advice/table.ts";
import { chosenWords, requestWords, searchedWords, stateWords } from "../src/advice/words.ts";

function measured(
  name: string,
  speed: number,
  share: number,
  more: Partial<Measured> = {},
): Measured {
  const kept = { share, low: share - 0.05, high: share + 0.02, pairs: 8, gained: 0, lost: 1, p: 1 };
  const costs = { ms: 100, recomputed: 0.25, gflops: 3 };
  const speeds = { speed_up: speed, speed_up_low: speed - 0.125, speed_up_high: speed + 0.25 };
  return { name, prompts: 8, ...speeds, kept, from: "searched", ...costs, ...more };
}

const ADVICE: Advice = {
  request: { keep: 0.9, of: "accuracy", search_prompts: 4, held_back_prompts: 8, candidates: 8 },
  finished: true,
  chosen: {
    ...measured("dual: fast", 3, 0.95),
    cache: "dual",
    preset: { cache: "dual" },
    card: {},
    query: "b.cache=dual",
  },
  front: [
    ["dual", "dual: fast"],
    ["dual", "dual: exact"],
  ],
  caches: [
    {
      cache: "dual",
      title: "Fast-dLLM dual cache",
      grid: 10,
      grid_runs: 40,
      runs: 8,
      random_runs: 6,
      correlations: { kept: 0.5, time: null, settings: 5 },
      searched: [measured("dual: slow", 1.5, 0.8), measured("dual: fast", 2.9, 0.97)],
      held_back: [
        measured("dual: exact", 1.2, 1, { from: "published" }),
        measured("dual: fast", 3, 0.95, { chosen: true }),
      ],
    },
  ],
  not_tested: ["dual: other settings"],
};

test("tested settings come first, fastest first, and none twice", () => {
  assert.deepEqual(
    points(ADVICE).map(({ name, tested, front }) => [name, tested, front]),
    [
      ["dual: fast", true, true],
      ["dual: exact", true, true],
      ["dual: slow", false, false],
    ],
  );
});

test("the figure has every judged setting, intervals of tested ones, and the asked share", () => {
  const spec = frontFigure(ADVICE);
  assert.ok(spec);
  const named = spec.series.map(({ name }) => name);
  assert.ok(named.includes("defaults and published settings, new prompts"));
  assert.ok(named.includes("found by the search, search prompts only"));
  const front = spec.series.find(({ name }) => name === "Pareto front");
  assert.deepEqual(front?.xs, [1.2, 3]);
  const bars = spec.series.filter(({ name, xs }) => !name && xs.length === 2);
  assert.equal(bars.length, 4);
  assert.deepEqual(bars[1].xs, [1.075, 1.45]);
  assert.equal(spec.rules?.[0].y, 90);
  assert.ok(spec.y.from <= 79 && spec.y.to >= 102);
  assert.match(
    spec.words?.(1.45, 81) ?? "",
    /^dual: slow: 1\.50 \(1\.38 to 1\.75\) times .* prompts of the search$/,
  );
});

test("a setting that one prompt tested has no intervals, in the file and in the figure", () => {
  const held_back = [measured("dual: fast", 3, 0.95, { prompts: 1 })];
  const one = { ...ADVICE, caches: [{ ...ADVICE.caches[0], searched: [], held_back }] };
  const [head, row] = settingRows(points(one));
  const ends = head.flatMap((name, i) => (/_(low|high)$/.test(String(name)) ? [row[i]] : []));
  assert.deepEqual(ends, [null, null, null, null]);
  assert.equal(row[head.indexOf("kept")], 0.95);
  assert.deepEqual(
    frontFigure(one)?.series.map(({ name }) => name),
    ["found by the search, new prompts"],
  );
});

test("there is no figure before a setting was judged", () => {
  const searched = [measured("dual: slow", 1.5, 0.8, { kept: null })];
  const caches = [{ ...ADVICE.caches[0], searched, held_back: [] }];
  assert.equal(frontFigure({ ...ADVICE, caches }), null);
});

test("the chosen setting is named with its figures, and what is missing is said", () => {
  assert.match(
    chosenWords(ADVICE),
    /^dual: fast: 3\.00 \(2\.88 to 3\.25\) times as fast .* on 8 new prompts;/,
  );
  assert.doesNotMatch(chosenWords(ADVICE), /plain decoding serves better/);
  const slower = ADVICE.chosen && { ...ADVICE.chosen, speed_up: 0.94 };
  assert.match(chosenWords({ ...ADVICE, chosen: slower }), /so plain decoding serves better\.$/);
  assert.match(chosenWords({ ...ADVICE, chosen: null }), /^Plain decoding: .* at least 90 %/);
  assert.match(chosenWords({ ...ADVICE, finished: false }), /no setting is chosen/);
});

test("a search says what it was asked for", () => {
  const words = requestWords(ADVICE);
  assert.match(words, /^Asked for: at least 90 % \(right answers, .*\), 4 prompts for the search/);
  assert.match(words, /and 8 others for the final test, at most 8 candidates of a method\.$/);
  const request = { ...ADVICE.request, search_prompts: 1, held_back_prompts: 1, candidates: 1 };
  const single = /, 1 prompt for the search and 1 other for the final test, at most 1 candidate of/;
  assert.match(requestWords({ ...ADVICE, request }), single);
});

test("a search says its size against the grid and how its predictions ranked", () => {
  const text = searchedWords(ADVICE.caches[0]);
  assert.match(
    text,
    /^Fast-dLLM dual cache: 8 runs chose among 10 settings; all of them would be 40 runs \(20 %\)/,
  );
  const before = searchedWords({ ...ADVICE.caches[0], runs: 0 });
  assert.match(before, /^Fast-dLLM dual cache: no candidate of 10 settings was run yet/);
  assert.match(text, /over 5 settings: 0\.50 for what is kept;/);
  assert.match(text, /6 runs of settings drawn at random\.$/);
});

test("the state names the stage while it runs and nothing of it later", () => {
  const progress = {
    search: "x", state: "running", message: "", stage: "measuring dual", done: 3, total: 9,
    seconds_left: 12, runs: 3,
  }; // prettier-ignore
  assert.match(stateWords(progress), /^Searching\. Measuring dual: 3 of 9\. 3 runs so far\. About/);
  assert.equal(stateWords({ ...progress, state: "done" }), "Done. 3 runs.");
  assert.equal(stateWords({ ...progress, state: "failed", message: "no" }), "Failed. no.");
  const refused = { ...progress, state: "refused", message: "no" };
  assert.equal(stateWords(refused), "Not run. no. Below is the last search.");
  assert.equal(stateWords({ ...refused, search: "" }), "Not run. no.");
});

test("the rows of the file have plain numbers", () => {
  const [head, first] = settingRows(points(ADVICE));
  assert.equal(head.length, first.length);
  assert.deepEqual(first.slice(0, 8), ["dual: fast", "searched", "true", 8, 3, 2.875, 3.25, 0.95]);
});
