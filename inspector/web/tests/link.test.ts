import assert from "node:assert/strict";
import test from "node:test";
import { linkTo } from "../src/page/plan.ts";
import { cursorKey, fits, readLink } from "../src/race/link.ts";
import { laneStart } from "./races.ts";

const FRAME = { steps: 20, layers: 8, positions: 40 };

test("a link names lane, step, layer and position from 1", () => {
  assert.deepEqual(readLink("?cursor=b.3.8.21&look=drift"), {
    cursor: { lane: "b", step: 2, layer: 7, position: 20 },
    look: "drift",
  });
});

test("a link may name no token", () => {
  assert.deepEqual(readLink("?cursor=a.1.1").cursor, {
    lane: "a",
    step: 0,
    layer: 0,
    position: null,
  });
});

test("what is not a cursor or a view is ignored", () => {
  for (const text of ["c.1.1", "a.0.1", "a.1", "a.1.1.0", "a.12345.1", "a.1.1.1.1", " a.1.1", ""]) {
    assert.equal(readLink("?cursor=" + encodeURIComponent(text)).cursor, null, text);
  }
  for (const text of ["toString", "card", "Drift", ""]) {
    assert.equal(readLink("?look=" + text).look, null, text);
  }
});

test("a cursor fits a lane only within its steps, layers and positions", () => {
  const spot = { lane: "a", step: 19, layer: 7, position: 39 } as const;
  const lane = { start: laneStart() };
  assert.equal(fits(spot, lane, FRAME), true);
  assert.equal(fits({ ...spot, step: 20 }, lane, FRAME), false);
  assert.equal(fits({ ...spot, layer: 8 }, lane, FRAME), false);
  assert.equal(fits({ ...spot, position: 40 }, lane, FRAME), false);
  assert.equal(fits(spot, { start: null }, FRAME), false);
  assert.equal(fits(spot, lane, undefined), false);
});

test("a frame without recorded layers has the first layer", () => {
  const spot = { lane: "a", step: 0, layer: 0, position: null } as const;
  assert.equal(fits(spot, { start: laneStart() }, { ...FRAME, layers: 0 }), true);
});

test("a cursor reads as it was written", () => {
  const spot = { lane: "b", step: 2, layer: 7, position: 20 } as const;
  const home = { lane: "a", step: 0 } as const;
  assert.deepEqual(readLink("?cursor=" + cursorKey(spot, FRAME, home)).cursor, spot);
});

test("the place at which the inspector starts is not in a link", () => {
  const home = { lane: "b", step: 19 } as const;
  const start = { ...home, layer: 4, position: null } as const;
  assert.equal(cursorKey(start, FRAME, home), "");
  assert.equal(cursorKey({ ...start, lane: "a" }, FRAME, home), "a.20.5");
  assert.equal(cursorKey({ ...start, step: 18 }, FRAME, home), "b.19.5");
  assert.equal(cursorKey({ ...start, layer: 3 }, FRAME, home), "b.20.4");
  assert.equal(cursorKey({ ...start, position: 0 }, FRAME, home), "b.20.5.1");
  assert.equal(cursorKey({ ...start, layer: null, step: 0 }, FRAME, home), "");
});

test("the link to settings has the cursor and the view where they are not at rest", () => {
  const link = (cursor: string, look: string): string =>
    linkTo("http://x/", "seed=1", { cursor, look });
  assert.equal(link("", ""), "http://x/?seed=1");
  assert.equal(link("b.3.8", "drift"), "http://x/?seed=1&cursor=b.3.8&look=drift");
});
