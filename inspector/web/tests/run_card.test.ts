import assert from "node:assert/strict";
import test from "node:test";
import type { Inspector } from "../src/inspect/inspector.ts";
import { cardText } from "../src/race/run_card.ts";
import { finished, raceOf, steps } from "./races.ts";

test("a race that goes on has no run card, and none is asked for", async () => {
  const store = raceOf(steps([0]), []);
  const inspector = { store, fetch: () => assert.fail("asked") } as unknown as Inspector;
  assert.equal(await cardText(inspector), "");
});

test("the card of a finished race has its lanes and the command that repeats it", async () => {
  const fetch = (lane: string): Promise<object> => Promise.resolve({ spec: {}, lane });
  const card = await cardText({ store: finished(), fetch } as unknown as Inspector);
  const { lanes, repeat } = JSON.parse(card) as { lanes: object; repeat: string };
  assert.deepEqual(Object.keys(lanes), ["a", "b"]);
  assert.match(repeat, /^python -m engine repeat driftscope-run-run-card.json/);
});
