import assert from "node:assert/strict";
import { test } from "node:test";
import { handScene, mass, sceneFor } from "../src/page/theorem_model.ts";
import { verdict } from "../src/page/theorem_words.ts";

test("probabilities of a joint and of its product sum to one", () => {
  const { rows } = sceneFor(4, 30, 0.7);
  assert.ok(Math.abs(mass(rows) - 1) < 1e-9);
  assert.ok(Math.abs(mass(rows, "q") - 1) < 1e-9);
});

test("each top token has more than 1 − ε", () => {
  for (const hundredths of [10, 33, 34, 60]) {
    const { tops, epsilon } = sceneFor(2, hundredths, 1);
    for (const top of tops) assert.ok(top > 1 - epsilon, `ε = ${epsilon}`);
  }
});

test("inside the zone both ways agree whatever the dependency", () => {
  for (const k of [2, 3, 4, 5, 6]) {
    const scene = sceneFor(k, Math.floor(100 / (k + 1)), 1);
    assert.ok(scene.safe && scene.same && scene.bestP.includes(scene.once), `k = ${k}`);
  }
});

test("just outside the zone a full dependency has another most probable outcome", () => {
  for (const k of [2, 3, 4, 5, 6]) {
    const scene = sceneFor(k, Math.floor(100 / (k + 1)) + 1, 1);
    assert.ok(!scene.safe && !scene.bestP.includes(scene.once), `k = ${k}`);
  }
});

test("without a dependency the product is the joint", () => {
  assert.ok(sceneFor(5, 40, 0).tv < 1e-12);
});

test("the example's most likely words form a hand that does not exist", () => {
  const { once, bestP } = handScene();
  assert.deepEqual([once.name, once.p, bestP[0].name], ["high house", 0, "full house"]);
});

test("the verdict states the sum of the theorem", () => {
  assert.match(verdict(sceneFor(3, 25, 1)), /^Guaranteed: \(k \+ 1\)ε = 4 × 0\.25 = 1\.00 ≤ 1/);
});
