import assert from "node:assert/strict";
import test from "node:test";
import type { Component } from "../src/base/component.ts";
import { replayComponent } from "../src/race/replay_source.ts";
import { raceNews, steps } from "./races.ts";

const RACE = raceNews(steps([0]), steps([1]));

function source(): Component {
  const element = {} as HTMLElement; // the source does not look at it
  return replayComponent(element, { race: RACE, views: { a: { frame: { steps: 1 } } } });
}

test("the race is that of the file, without a server", async () => {
  const { props, server } = source();
  assert.equal(props.offline, true);
  assert.deepEqual(JSON.parse(props.value), RACE);
  assert.equal(await server.replay("run"), props.value);
});

test("a view is that of the file", async () => {
  assert.deepEqual(JSON.parse(await source().server.view("run", "a", "frame")), { steps: 1 });
});

test("a view or a lane that the file lacks is missing", async () => {
  const { server } = source();
  for (const [lane, name] of [
    ["a", "drift"],
    ["b", "frame"],
  ]) {
    const found = JSON.parse(await server.view("run", lane, name)) as { missing: string };
    assert.match(found.missing, /^This file holds no such view/);
  }
});
