import assert from "node:assert/strict";
import test from "node:test";
import { CellMap } from "../src/inspect/cell_map.ts";
import { NO_DATA } from "../src/inspect/codes.ts";
import {
  COSINE_LOOKS,
  cosinesApart,
  decadesApart,
  RATIO_LOOKS,
  ratioWords,
  sharedSteps,
} from "../src/inspect/differences.ts";
import { commonSteps } from "../src/inspect/step_pairs.ts";
import type { Panel } from "../src/inspect/panel.ts";
import { drawDriftDifference, laneCellWords } from "../src/inspect/views/drift_sides.ts";
import { bytes } from "./inspected.ts";
import { raceOf, steps } from "./races.ts";

test("drifts are compared by their ratio, and those too small for the scale are equal", () => {
  assert.equal(decadesApart(0.01, 0.1), 1);
  assert.equal(decadesApart(0.1, 0.001), -2);
  assert.equal(decadesApart(1e-9, 1e-6), 0);
  assert.equal(decadesApart(0.1, NaN), null);
  assert.equal(decadesApart(NaN, 0.1), null);
});

test("a drift is one minus the cosine, so cosines differ the other way round", () => {
  assert.equal(cosinesApart(0.5, 0.25), 0.25);
  assert.equal(cosinesApart(NaN, 0.25), null);
});

test("lanes without a common step have no difference, which their figures say", () => {
  const store = raceOf(steps([0]), []);
  const said: (string | null)[] = [];
  const figure = { wait: (reason: string | null) => said.push(reason) };
  const panel = { inspector: { store }, bothFigure: () => figure } as unknown as Panel;
  drawDriftDifference(panel, "v");
  assert.deepEqual(said, new Array<string>(2).fill("The lanes have no step in common."));
});

test("orange is more drift in B and purple less, in both scales", () => {
  const orange = ([red, , blue]: readonly number[]): boolean => red > blue;
  assert.ok(orange(RATIO_LOOKS.colour(1)));
  assert.ok(!orange(RATIO_LOOKS.colour(-1)));
  assert.ok(orange(COSINE_LOOKS.colour(-0.4)));
  assert.ok(!orange(COSINE_LOOKS.colour(0.4)));
  assert.deepEqual(RATIO_LOOKS.colour(0), COSINE_LOOKS.colour(0));
});

test("the colours of the legend are those of the values beside them", () => {
  for (const { colour, legend } of [RATIO_LOOKS, COSINE_LOOKS]) {
    assert.ok(legend?.kind === "scale");
    const ends = legend === RATIO_LOOKS.legend ? [-2, 0, 2] : [-0.5, 0, 0.5];
    assert.deepEqual(ends.map(colour), [0, 0.5, 1].map(legend.colour));
  }
});

test("a ratio is told as how many times as large or small", () => {
  assert.equal(ratioWords(0.01, 0.1), "10 times as large in B");
  assert.equal(ratioWords(0.032, 0.01), "3.2 times as small in B");
  assert.equal(ratioWords(0.1, 0.101), "about equal");
  assert.equal(ratioWords(0.1, NaN), "not known in both lanes");
});

test("a ratio of a drift that is too small for the scale is a bound", () => {
  assert.equal(ratioWords(1e-6, 0.01), "at least 100 times as large in B");
  assert.equal(ratioWords(0.01, 1e-6), "at least 100 times as small in B");
  assert.equal(ratioWords(1e-6, 1e-5), "both too small to compare");
  assert.match(RATIO_LOOKS.unit ?? "", /below 0\.0001 as 0\.0001$/);
});

test("the words of a joined cell are those of its own row, and of its own lane", () => {
  const window = (from: number, to: number, factor: number): object => ({ from, to, factor });
  const map = (rows: object, cells: number[], coarse: CellMap | null = null): CellMap => {
    const facts = { rows, columns: window(0, 1, 1), by: "maximum" };
    return new CellMap({ arrays: { cells: bytes([cells.length, 1], cells) }, facts }, coarse);
  };
  const fine = map(window(4, 6, 1), [NO_DATA, 0], map(window(0, 6, 3), [0, 0]));
  assert.equal(laneCellWords(fine, 0, 0, true), "largest of 3 × 1 cells below 0.0001");
  assert.equal(laneCellWords(fine, 4, 0, true), "not evaluated");
  assert.equal(laneCellWords(fine, 4, 0, false), "not evaluated or not recorded");
  assert.equal(laneCellWords(fine, 6, 0, true), "not in this lane");
});

test("the steps that both lanes took are those of the whole run", () => {
  const { lanes } = raceOf(steps([0], [1], [2], [3]), steps([2], [3]));
  assert.deepEqual(sharedSteps(lanes.a, lanes.b), { first: 0, count: 2 });
  if (lanes.b.start) lanes.b.start.before = 2;
  assert.deepEqual(sharedSteps(lanes.a, lanes.b), { first: 2, count: 2 });
  if (lanes.b.start) lanes.b.start.before = 9;
  assert.equal(sharedSteps(lanes.a, lanes.b).count, 0);
});

test("compared steps are matched by their number in the whole run", () => {
  const a = { steps: [0, 2, 4, 6], before: 0 };
  assert.deepEqual(commonSteps(a, { steps: [0, 1, 2], before: 4 }), [
    { step: 4, a: 2, b: 0 },
    { step: 6, a: 3, b: 2 },
  ]);
});
