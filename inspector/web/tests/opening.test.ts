import assert from "node:assert/strict";
import test from "node:test";
import { CAUSAL, emptyViews, type LaneFacts } from "../src/inspect/empty_views.ts";
import { tellingStep } from "../src/inspect/opening.ts";
import { tabAfter } from "../src/inspect/tabs.ts";
import { GROUPS, VIEWS } from "../src/inspect/views/index.ts";
import { bytes } from "./inspected.ts";

const step = (...kinds: number[]): number =>
  tellingStep({ kinds: bytes([kinds.length], kinds), steps: kinds.length });

test("a run opens at the middle one of the steps that recompute a part", () => {
  assert.equal(step(0, 0, 1, 0, 1, 1, 2), 4);
  assert.equal(step(0, 1), 1);
});

test("without such a step it opens where all is reused, else in its middle", () => {
  assert.equal(step(0, 2, 0, 0), 1);
  assert.equal(step(0, 0, 0, 0), 1);
  assert.equal(step(), 0);
});

const lane = (
  level: LaneFacts["frame"]["level"],
  lacks: string[] = [],
  record = "off",
  foreign: LaneFacts["lacks"] = [],
  causal = false,
): LaneFacts => ({
  frame: { level, lacks, causal },
  record,
  lacks: foreign,
});
const emptyOf = (...lanes: LaneFacts[]): string[] => [...emptyViews(lanes).keys()].sort();

test("views that need a higher recording level have nothing to show", () => {
  assert.deepEqual(
    emptyOf(lane("off", ["similarity", "guider"]), lane("off", ["similarity", "guider"])),
    ["candidates", "counts", "drift", "error", "experts", "guider", "lens", "queries"].concat([
      "scatter",
      "schedule",
      "similarity",
      "what_if",
    ]),
  );
  assert.deepEqual(emptyOf(lane("layers"), lane("layers")), ["error", "lens"]);
  assert.equal(
    emptyViews([lane("off"), lane("off")]).get("drift"),
    "This run has no recorded drifts.",
  );
});

test("a view that shows something of one lane is not marked", () => {
  assert.deepEqual(emptyOf(lane("probe", ["guider"]), lane("probe")), []);
  assert.deepEqual(emptyOf(lane("probe", ["guider"]), lane("probe", ["guider"])), ["guider"]);
  assert.deepEqual(emptyOf(lane("off"), lane("probe")), []);
});

test("times are of runs that were timed, and a comparison is of two lanes", () => {
  assert.deepEqual(emptyOf(lane("probe", [], "probe"), lane("probe", [], "probe")), ["time"]);
  assert.ok(!emptyOf(lane("steps", [], "steps"), lane("steps", [], "steps")).includes("time"));
  assert.deepEqual(emptyOf(lane("probe")), ["compare"]);
  assert.deepEqual(emptyOf(), []);
});

test("every view has its tab, and the keys go through all groups", () => {
  const names = GROUPS.flatMap(({ views }) => views);
  assert.deepEqual([...names].sort(), Object.keys(VIEWS).sort());
  assert.equal(tabAfter("experts", "ArrowRight"), "schedule");
  assert.equal(tabAfter("drift", "ArrowLeft"), "guider");
  assert.equal(tabAfter("time", "Home"), "drift");
  assert.equal(tabAfter("time", "End"), "guider");
  assert.equal(tabAfter("time", "a"), null);
});

test("an autoregressive run has nothing that drifts, recorded or not", () => {
  const causal = lane("steps", ["similarity", "lens", "guider"], "off", [], true);
  const found = emptyViews([causal, causal]);
  for (const name of ["drift", "counts", "queries", "scatter", "error"] as const)
    assert.equal(found.get(name), CAUSAL);
  assert.match(found.get("what_if") ?? "", /no rule that could have chosen others/);
  assert.equal(found.get("schedule"), undefined);
  assert.notEqual(emptyViews([lane("steps"), lane("steps")]).get("drift"), CAUSAL);
});
