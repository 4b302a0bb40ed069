import assert from "node:assert/strict";
import test from "node:test";
import { gridOf, isWhole } from "../src/figures/cells.ts";
import type { HeatSpec } from "../src/figures/spec.ts";
import { figureRows } from "../src/figures/table.ts";
import { windowed } from "../src/figures/zoom.ts";
import { CellMap, largerBlocks } from "../src/inspect/cell_map.ts";
import type { VerdictCode } from "../src/inspect/guided.ts";
import { mapParameters, partQuery, wholeQuery, type AxisSight } from "../src/inspect/map_query.ts";
import type { Slice } from "../src/inspect/slice.ts";
import { singleVerdicts, verdictCells } from "../src/inspect/views/guider.ts";
import { bytes } from "./inspected.ts";

function sight(count: number, pixels: number, shown: AxisSight["shown"] = null): AxisSight {
  return { count, pixels, shown };
}

test("a small map is asked for as it is", () => {
  const [rows, columns] = [sight(100, 50), sight(3000, 500, { from: 0, to: 10 })];
  assert.deepEqual(wholeQuery(rows, columns, 1), { rows: {}, columns: {} });
  assert.equal(partQuery(rows, columns, 1), null);
});

test("a large map has about one cell for each pixel", () => {
  const { rows, columns } = wholeQuery(sight(1024, 280), sight(3072, 900), 1);
  assert.deepEqual([rows.most, columns.most], [256, 1024]);
});

test("a part of a large map that is in sight is asked for cell by cell", () => {
  const rows = sight(1024, 280, { from: 100, to: 140 });
  const columns = sight(3072, 900, { from: 200, to: 300 });
  assert.deepEqual(partQuery(rows, columns, 1), {
    rows: { from: 96, to: 160 },
    columns: { from: 128, to: 384 },
  });
});

test("a part that is too large has as many cells as the screen can show", () => {
  const part = partQuery(sight(1024, 280), sight(3072, 900, { from: 0, to: 2000 }), 1);
  assert.deepEqual(part?.columns, { from: 0, to: 2048, most: 1024 });
  assert.deepEqual(part.rows, { from: 0, to: 1024, most: 256 });
});

test("the columns of a map may begin at a later position", () => {
  const names = { rows: "step", columns: "position" };
  const whole = mapParameters({ rows: {}, columns: {} }, names, 5);
  assert.deepEqual([whole.position_from, whole.position_to], [5, undefined]);
  const part = mapParameters({ rows: {}, columns: { from: 2, to: 4, most: 2 } }, names, 5);
  assert.deepEqual([part.position_from, part.position_to, part.width], [7, 9, 2]);
});

/** Rows 0 to 4 and columns 2 to 7 of a map, each two joined: [10, 20, 30; 40, 50, 60]. */
const JOINED: Slice = {
  arrays: { cells: bytes([2, 3], [10, 20, 30, 40, 50, 60]) },
  facts: {
    rows: { from: 0, to: 4, factor: 2 },
    columns: { from: 2, to: 7, factor: 2 },
    by: "maximum",
  },
};
/** Rows 1 to 3 and columns 4 to 6, one by one. */
const FINE: Slice = {
  arrays: { cells: bytes([2, 2], [1, 2, 3, 4]) },
  facts: {
    rows: { from: 1, to: 3, factor: 1 },
    columns: { from: 4, to: 6, factor: 1 },
    by: "none",
  },
};

test("joined cells have one value, which says what it is", () => {
  const map = new CellMap(JOINED);
  assert.deepEqual([map.at(1, 3), map.at(2, 6), map.at(0, 7)], [10, 60, NaN]);
  assert.equal(map.words(1, 3), "largest of 2 × 2 cells ");
});

test("a finer slice is read where it has cells, the coarse one elsewhere", () => {
  const map = new CellMap(FINE, new CellMap(JOINED));
  assert.deepEqual([map.at(1, 4), map.at(2, 5), map.at(0, 4)], [1, 4, 20]);
  assert.equal(map.words(1, 4), "");
  assert.equal(map.words(0, 4), "largest of 2 × 2 cells ");
});

/** A heat map of four rows and five columns, which begin at position 2. */
function specOf(map: CellMap): HeatSpec {
  return {
    title: "",
    key: map.key,
    x: { name: "position", count: 5, tick: (x) => String(x + 3) },
    y: { name: "step", count: 4 },
    value: (x, y) => map.at(y, x + 2),
    ...map.drawn(
      Array.from({ length: 256 }, () => [0, 0, 0] as const),
      2,
    ),
    colour: () => [0, 0, 0],
    words: () => "",
    unit: "drift",
  };
}

test("a heat map of joined cells is drawn in blocks, and so is a part of it", () => {
  const spec = specOf(new CellMap(JOINED));
  assert.equal(isWhole(spec), false);
  const { wide, high, values } = gridOf(spec);
  assert.deepEqual([wide, high, [...values]], [3, 2, [10, 20, 30, 40, 50, 60]]);
  const part = windowed(spec, { x: { from: 1, to: 4 }, y: { from: 2, to: 4 } });
  assert.deepEqual(part.blocks, {
    x: { from: -1, to: 3, factor: 2 },
    y: { from: 0, to: 2, factor: 2 },
  });
  assert.deepEqual([...gridOf(part).values], [40, 50]);
});

test("a heat map without codes takes the value of each block", () => {
  const { cells, ...spec } = specOf(new CellMap(JOINED));
  assert.ok(cells);
  assert.deepEqual([...gridOf(spec).values], [10, 20, 30, 40, 50, 60]);
});

test("the CSV of joined cells names the first and the last of each, and what they have", () => {
  const [head, first, , last] = figureRows(specOf(new CellMap(JOINED)));
  assert.deepEqual(head, [
    "position",
    "last position",
    "step",
    "last step",
    "drift, largest of the cells",
  ]);
  assert.deepEqual(first, ["3", "4", 1, 2, 10]);
  assert.deepEqual(last, ["7", "7", 1, 2, 30]);
  const joined = "of the largest drifts of each lane";
  const [compared] = figureRows({ ...specOf(new CellMap(JOINED)), several: "mean", joined });
  assert.equal(compared.at(-1), `drift, ${joined}`);
});

test("the CSV of cells that are known one by one has one row for each", () => {
  const map = new CellMap(FINE, new CellMap(JOINED));
  const part = windowed(specOf(map), { x: { from: 2, to: 4 }, y: { from: 1, to: 3 } });
  assert.deepEqual(figureRows(part), [
    ["position", "step", "drift"],
    ["5", "2", 1],
    ["6", "2", 2],
    ["5", "3", 3],
    ["6", "3", 4],
  ]);
});

test("maps that are joined in other ways are compared in the larger blocks of both", () => {
  const joined = (high: number, wide: number): CellMap =>
    new CellMap({
      ...JOINED,
      facts: {
        rows: { from: 0, to: 4, factor: high },
        columns: { from: 0, to: 6, factor: wide },
        by: "maximum",
      },
    });
  assert.equal(joined(2, 2).joinedAs(joined(2, 3)), undefined);
  assert.deepEqual(largerBlocks(joined(2, 2), joined(1, 3), 6, 4), {
    x: { from: 0, to: 6, factor: 3 },
    y: { from: 0, to: 4, factor: 2 },
  });
  assert.equal(largerBlocks(joined(1, 1), joined(1, 1), 6, 4), undefined);
});

test("joined verdicts are blocks of the answer tokens that are shown", () => {
  const codes = Uint8Array.from([1, 2, 3, 4]);
  assert.deepEqual(verdictCells(new CellMap(JOINED), codes, 5, []), {
    blocks: { x: { from: 2, to: 5, factor: 2 }, y: { from: 0, to: 4, factor: 2 } },
  });
  const single = verdictCells(new CellMap(FINE), codes, 2, []);
  assert.deepEqual([single.blocks, single.cells?.().codes], [undefined, codes]);
});

test("the verdict on a token is its own, also where the map joins cells", () => {
  const row = { cells: bytes([1, 3], [7, 8, 9]) };
  const verdict = (found: VerdictCode | string, step: number, place: number): number | string =>
    typeof found === "string" ? found : found(step, place);
  const joined = new CellMap(FINE, new CellMap(JOINED));
  assert.equal(
    verdict(
      singleVerdicts(joined, 1, 8, () => row),
      1,
      2,
    ),
    9,
  );
  assert.equal(
    verdict(
      singleVerdicts(joined, 1, 8, () => "It is gone."),
      1,
      2,
    ),
    "It is gone.",
  );
  assert.equal(
    verdict(
      singleVerdicts(new CellMap(FINE), 2, 6, () => row),
      2,
      5,
    ),
    4,
  );
});
