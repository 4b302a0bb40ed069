import assert from "node:assert/strict";
import test from "node:test";
import { at } from "../src/inspect/arrays.ts";
import { rowAges } from "../src/inspect/replay_slices/plans.ts";
import { planOfLayer, type PlanBits } from "../src/inspect/plans.ts";
import {
  codeText,
  countedPlaces,
  layerLimit,
  mapLegend,
  thresholdWords,
} from "../src/inspect/query_words.ts";
import { useWords } from "../src/inspect/views/queries.ts";
import { cutPart, floats, frame, ints, planOf } from "./inspected.ts";

const [K, V, ATTENTION] = [0, 1, 2];
const DATA = {
  threshold: [-1, 0.01],
  aimed: [0, 0.25],
  dare: true,
  site: V,
  anchor: false,
  edges: floats([2], [0, 1]),
  calls: 0,
};

test("the legend names what is reused", () => {
  assert.equal(mapLegend(K, 0, null).underName, "K reused");
  assert.equal(mapLegend(ATTENTION, 0, null).underName, "attention output reused");
  assert.doesNotMatch(mapLegend(K, 0, null).blank, /recorded/);
  assert.match(mapLegend(K, 0, null, false).blank, /, or not recorded$/);
});

test("legends of different sites, layers or thresholds differ as texts, so that they are redrawn", () => {
  const legends = [
    mapLegend(K, 0, 0.01),
    mapLegend(V, 0, 0.01),
    mapLegend(V, 1, 0.01),
    mapLegend(V, 1, 0.1),
    mapLegend(V, 1, null),
  ].map((legend) => JSON.stringify(legend));
  assert.equal(new Set(legends).size, legends.length);
});

test("the threshold is marked on the scale, whose decades are equally long", () => {
  const { legend } = mapLegend(V, 1, 0.01);
  assert.deepEqual(legend.kind === "scale" && legend.marks, [0.6]);
  assert.deepEqual(legend.items, [[[213, 94, 0], "τ of layer 2: 0.010", "τ"]]);
});

test("without a threshold nothing is marked", () => {
  const { legend } = mapLegend(V, 1, null);
  assert.deepEqual([legend.kind === "scale" && legend.marks, legend.items], [[], []]);
});

test("a layer that reuses nothing has no threshold", () => {
  assert.deepEqual(
    [0, 1].map((layer) => layerLimit(DATA, layer)),
    [null, 0.01],
  );
  assert.equal(layerLimit({ threshold: null }, 0), null);
});

test("the sentence says where the threshold is from", () => {
  const words = (layer: number, changes: Partial<typeof DATA> = {}): string =>
    thresholdWords({ ...DATA, ...changes }, layer, layerLimit(DATA, layer));
  assert.equal(
    words(1),
    "Layer 2: τ = 0.010, set so that 25 % of the rows of a calibration run stay below it.",
  );
  assert.match(words(1, { aimed: [0, 0.9997] }), /so that 99\.9 % of the rows/);
  assert.equal(words(0), "Layer 1: nothing is reused.");
  assert.match(words(1, { anchor: true }), /below it\. The method compared each query with/);
  assert.match(words(1, { dare: false }), /^The cache of this run does not compare queries/);
});

test("a drift of a narrowed run is not said to be not compared if it may not be recorded", () => {
  assert.deepEqual([codeText(255, true), codeText(0, true)], ["not compared", "below 0.000015"]);
  assert.equal(codeText(255, false), "not compared or not recorded");
});

test("the histogram counts all positions, and all steps but commit calls", () => {
  assert.equal(countedPlaces({ calls: 0 }, ""), "all positions and steps");
  const words = "all recorded positions and steps but commit calls";
  assert.equal(countedPlaces({ calls: 3 }, "recorded "), words);
});

test("a DARE run without thresholds reuses nothing", () => {
  const words = thresholdWords({ ...DATA, threshold: null, aimed: null }, 0, null);
  assert.match(words, /^This run reuses nothing/);
});

test("a row that a step does not attend to is not reused", () => {
  const plan = planOf((step, _, __, x) => step === 0 && x < 2);
  const bits = cutPart<PlanBits>({ frame: frame(), plan }, planOfLayer(0, V));
  const sight = ints([3], [4, 6, 6]);
  const words = [0, 3, 4].map((position) => useWords(bits, { sight }, 0, position));
  assert.deepEqual(words, ["recomputed", "reused", "not in sight"]);
});

const [POSITIONS, NEVER] = [6, 65535];

test("an age counts the steps since the value was recomputed", () => {
  const { plan } = planOf((step, _, site, x) => site === V && x === 0 && step === 0);
  const ages = rowAges(plan, POSITIONS, 0, V);
  assert.deepEqual(
    [0, 1, 2].map((step) => at(ages, step, 0)),
    [0, 1, 2],
  );
  assert.equal(at(ages, 2, 1), NEVER);
  assert.equal(at(rowAges(plan, POSITIONS, 0, K), 0, 0), NEVER);
});

test("an age begins again when the value is recomputed, in the layer asked for", () => {
  const { plan } = planOf((step, layer) => layer === 1 && step !== 1);
  const ages = rowAges(plan, POSITIONS, 1, V);
  assert.deepEqual(
    [0, 1, 2].map((step) => at(ages, step, 3)),
    [0, 1, 0],
  );
  assert.equal(at(rowAges(plan, POSITIONS, 0, V), 2, 3), NEVER);
});
