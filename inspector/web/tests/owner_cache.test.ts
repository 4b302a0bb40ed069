import assert from "node:assert/strict";
import test from "node:test";
import { OwnerCache } from "../src/base/owner_cache.ts";

test("a value is computed again only if the key or the owner is another", () => {
  const cache = new OwnerCache<object, number>();
  const [one, other] = [{}, {}];
  let computed = 0;
  const ask = (owner: object, key: string): number => cache.of(owner, key, () => ++computed);
  assert.deepEqual(
    [ask(one, "k"), ask(one, "k"), ask(other, "k"), ask(one, "l"), ask(one, "k")],
    [1, 1, 2, 3, 4],
  );
});
