import assert from "node:assert/strict";
import test from "node:test";
import {
  cursorKey,
  fits,
  missing,
  missingWords,
  readBranch,
  readLink,
  refusedWords,
  showKey,
  viewLink,
  worthSaying,
  type Look,
} from "../src/race/link.ts";
import { laneStart } from "./races.ts";

const FRAME = { steps: 20, layers: 8, positions: 40 };

test("a link names lane, step, layer and position from 1", () => {
  const { cursor, look } = readLink("?cursor=b.3.8.21&look=drift");
  assert.deepEqual(cursor, { lane: "b", step: 2, layer: 7, position: 20 });
  assert.equal(look, "drift");
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
  for (const text of [
    "c.1.1",
    "a.0.1",
    "a.1",
    "a.1.1.0",
    "a.12345.1",
    "a.1.1.1.1",
    " a.1.1",
    "<b>",
    "",
  ]) {
    assert.equal(readLink("?cursor=" + encodeURIComponent(text)).cursor, null, text);
  }
  for (const text of ["toString", "__proto__", "card", "Drift", ""]) {
    assert.equal(readLink("?look=" + text).look, null, text);
  }
});

test("what is not the choice of a control is ignored", () => {
  const show = (text: string): unknown => readLink("?show=" + encodeURIComponent(text)).show;
  assert.deepEqual(show("lanes.both,settings.threshold.threshold=0.8"), [
    ["lanes", "both"],
    ["settings", "threshold.threshold=0.8"],
  ]);
  for (const text of ['a"].b', "a].b", ".b", "lanes", "La nes.both", "toString()", ""])
    assert.deepEqual(show(text), [], text);
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
  assert.deepEqual(readLink("?cursor=" + cursorKey(spot)).cursor, spot);
  assert.equal(cursorKey({ ...spot, position: null }), "b.3.8");
});

test("a cursor whose layer is not known yet is not in a link", () => {
  assert.equal(cursorKey({ lane: "a", step: 0, layer: null, position: null }), "");
});

const REST: Look = { cursor: "", look: "", show: "", align: "", colour: "" };
const SOURCE = { query: "seed=1&b.cache=dual", branches: [], recorded: "" };

test("a link leaves out what is empty", () => {
  assert.equal(viewLink("http://x/", SOURCE, REST), "http://x/?seed=1&b.cache=dual");
  const look = { ...REST, cursor: "b.3.8", look: "similarity", show: "kind.k", align: "tokens" };
  assert.equal(
    viewLink("http://x/", { ...SOURCE, recorded: "dual" }, look),
    "http://x/?seed=1&b.cache=dual&recorded=dual&cursor=b.3.8&look=similarity&show=kind.k&align=tokens",
  );
});

test("a link reads as it was written", () => {
  const branches = ["a.5.3-17,4-m?cache=dual&dual.x=a%26b", "b.6"];
  const look = { ...REST, look: "counts", show: "quantity.k,tau.-1.5", colour: "confidence" };
  const link = viewLink("http://x/", { query: SOURCE.query, branches, recorded: "dual" }, look);
  const wanted = readLink(new URL(link).search);
  assert.deepEqual(wanted.branches, branches);
  assert.deepEqual(wanted.show, [
    ["quantity", "k"],
    ["tau", "-1.5"],
  ]);
  assert.equal(showKey(wanted.show), look.show);
  assert.equal(wanted.settings, "b.cache=dual&seed=1");
  assert.deepEqual([wanted.recorded, wanted.colour, wanted.align], ["dual", "confidence", ""]);
});

test("a branch has a lane, a step, edits and settings", () => {
  assert.deepEqual(readBranch("a.5.3-17,4-m?cache=dual"), {
    lane: "a",
    step: 4,
    edits: [
      [2, 17],
      [3, -1],
    ],
    settings: "?cache=dual",
  });
  assert.deepEqual(readBranch("b.1"), { lane: "b", step: 0, edits: [], settings: "parent" });
});

test("what is not a branch is ignored", () => {
  for (const text of ["", "c.1", "a.0", "a.1.x", "a.1.3", "a.1.3-", "a.1.0-4", "a", "a.1.1-12-3"])
    assert.equal(readBranch(text), null, text);
  assert.equal(readBranch("a.1.1-2,"), null);
  assert.equal(readBranch("a.1.1-" + "123456-".repeat(40) + "!"), null, "soon, not after years");
  assert.deepEqual(readLink("?branch=a.0&branch=a.1").branches, ["a.1"]);
});

/** What is left to press for a link on a page with a race. */
function left(
  search: string,
  changes: Partial<Parameters<typeof missing>[1]> = {},
  before = { a: 0, b: 0 },
): string {
  const wanted = readLink(search);
  const found = missing(wanted, { link: SOURCE, state: "example", level: "layers", ...changes });
  return found ? missingWords(wanted, found, before) : "";
}

test("a link without settings shows whatever race is there", () => {
  assert.equal(left("?look=drift&__theme=dark"), "");
});

test("a link to another race says that it has to be run", () => {
  assert.match(left("?seed=2&look=drift"), /“Drift” of a run .* Press Run;/);
  assert.match(left("?seed=2&cursor=b.3.8.21"), /a place of a run .* Press Run;/);
  assert.match(left("?seed=2"), /^This link brings the settings above\. Press Run/);
  assert.equal(left("?b.cache=dual&seed=1&look=drift"), "");
  assert.equal(left("?seed=2&look=drift", { state: "done" }), "");
});

test("a link whose settings cannot be run says so", () => {
  assert.match(refusedWords(readLink("?seed=2")), /^This link brings the settings above, but they/);
  assert.match(
    refusedWords(readLink("?seed=2&look=drift")),
    /^This link shows the view “Drift” of a run with the settings above, but they cannot be run:/,
  );
});

test("a link to a branch says that it has to be run, one after the other", () => {
  const search = "?branch=a.5.3-17&branch=b.6";
  assert.match(left(search), /before step 5 of lane A, with answer token 3 changed\. Press Branch/);
  assert.match(left("?branch=a.5.3-17,9-m"), /, with answer tokens 3, 9 changed\./);
  const link = { ...SOURCE, branches: ["a.5.3-17"] };
  assert.match(left(search, { link, state: "done" }), /before step 6 of lane B\. Press Branch/);
  const continued = left(search, { link, state: "done" }, { a: 0, b: 4 });
  assert.match(continued, /before step 10 of lane B\. Press Branch/);
  const both = { ...SOURCE, branches: ["a.5.3-17", "b.6"] };
  assert.equal(left(search, { link: both, state: "done" }), "");
  const other = { ...SOURCE, branches: ["a.9"] };
  assert.equal(left(search, { link: other, state: "done" }), "");
});

test("a link to a view that needs a recording says which key records", () => {
  assert.match(left("?look=drift", { level: "off" }), /Press Record\.$/);
  assert.match(left("?look=error"), /Press Record and probe\.$/);
  assert.equal(left("?look=time", { level: "off" }), "");
});

test("a link to a view says nothing of a branch that the reader made", () => {
  const link = { ...SOURCE, branches: ["a.9"] };
  assert.equal(left("?look=error", { link, state: "done", level: "off" }), "");
  assert.match(left("?look=error&branch=a.9", { link, state: "done" }), /Press Record and probe/);
});

test("what is left to press is not said where the key would do nothing", () => {
  const fine = { invalid: false, recordable: true, seen: false };
  const [run, record] = [{ press: "run" }, { press: "record", level: "layers" }] as const;
  assert.deepEqual([worthSaying(run, fine), worthSaying(record, fine)], [true, true]);
  assert.equal(worthSaying(run, { ...fine, invalid: true }), false, "the defaults are shown");
  assert.equal(worthSaying(run, { ...fine, seen: true }), false);
  assert.equal(worthSaying(record, { ...fine, recordable: false }), false);
  assert.equal(worthSaying(record, { ...fine, seen: true, invalid: true }), true);
});
