import assert from "node:assert/strict";
import test from "node:test";
import { Latest } from "../src/base/latest.ts";

test("a value is computed again only if the key or the owner is another", () => {
  const latest = new Latest<object, number>();
  const [one, other] = [{}, {}];
  let computed = 0;
  const ask = (owner: object, key: string): number => latest.of(owner, key, () => ++computed);
  assert.deepEqual(
    [ask(one, "k"), ask(one, "k"), ask(other, "k"), ask(one, "l"), ask(one, "k")],
    [1, 1, 2, 3, 4],
  );
});
