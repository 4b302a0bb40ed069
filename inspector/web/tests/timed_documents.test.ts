import assert from "node:assert/strict";
import test from "node:test";
import { TimedDocuments } from "../src/inspect/timed_documents.ts";

test("a document that could not be read is asked for again, and one that came is kept", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const answers = [Promise.reject(new Error("no server")), Promise.resolve('{"ms":1}')];
  let [asked, reminded] = [0, 0];
  const documents = new TimedDocuments(
    () => answers[asked++],
    () => reminded++,
  );
  assert.match(JSON.stringify(await documents.fetch("run", "a", "time")), /could not be read/);
  assert.match(JSON.stringify(documents.given("a", "time")), /could not be read/);
  t.mock.timers.tick(3000);
  assert.equal(reminded, 1);
  for (let i = 0; i < 2; i++)
    assert.deepEqual(await documents.fetch("run", "a", "time"), { ms: 1 });
  assert.deepEqual(documents.given("a", "time"), { ms: 1 });
  assert.equal(asked, 2);
});

test("what failed in another run is not asked for again", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  let reminded = 0;
  const documents = new TimedDocuments(
    () => Promise.reject(new Error("no server")),
    () => reminded++,
  );
  await documents.fetch("run", "a", "time");
  documents.reset();
  t.mock.timers.tick(3000);
  assert.deepEqual([documents.given("a", "time"), reminded], [undefined, 0]);
});
