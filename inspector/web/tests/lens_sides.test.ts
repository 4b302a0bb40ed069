/** The logit lens of both lanes while its data is on its way. */
import assert from "node:assert/strict";
import test from "node:test";
import type { Panel } from "../src/inspect/panel.ts";
import { drawLensSides } from "../src/inspect/views/lens_sides.ts";

Object.assign(globalThis, { document: { createElement: () => ({}) } });

test("the keys of another run's probed steps are hidden while those of this run are read", () => {
  const asked: string[] = [];
  const keys = {
    dataset: {},
    hidden: false,
    setAttribute: () => undefined,
    replaceChildren: () => undefined,
    querySelectorAll: () => [],
  };
  const side = {
    figure: (name: string) => name,
    parts: (figure: string) => (asked.push(figure), null),
  };
  const panel = {
    cursor: { lane: "a" },
    inspector: { key: "run", store: { lanes: {} } },
    block: () => keys,
    of: () => side,
  } as unknown as Panel;
  drawLensSides(panel);
  assert.deepEqual([keys.hidden, asked], [true, ["lens-run", "lens-run"]]);
});
