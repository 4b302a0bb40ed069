/** A figure in a document without anything else. */
import assert from "node:assert/strict";
import test from "node:test";
import { Figure } from "../src/figures/figure.ts";
import { HeatState } from "../src/figures/heat_state.ts";
import { HeatScreen } from "../src/figures/screen.ts";
import type { HeatSpec } from "../src/figures/spec.ts";

class Node extends EventTarget {
  dataset: Record<string, string> = {};
  readonly classes = new Set<string>();
  readonly classList = {
    toggle: (name: string, on: boolean): void => {
      if (on) this.classes.add(name);
      else this.classes.delete(name);
    },
  };
  textContent = "";
  append(): void {
    return;
  }
  setAttribute(): void {
    return;
  }
}

Object.assign(globalThis, { document: { createElement: () => new Node() }, Option: Node });

/** The title of a figure, and the part that a reader's pointing at it changes. */
interface Reading {
  caption: { textContent: string };
  readout: { textContent: string };
  say(text: string, aloud: boolean): void;
}

test("the title of a picture and what was read of it go with it", () => {
  const leave: readonly ((figure: Figure) => void)[] = [
    (figure) => figure.forget(),
    (figure) => figure.wait("The run is gone."),
  ];
  for (const take of leave) {
    const figure = new Figure("figure");
    const reading = figure as unknown as Reading;
    reading.caption.textContent = "Drift of V in layer 3";
    reading.say("Step 3: 0.25", true);
    assert.equal(reading.readout.textContent, "Step 3: 0.25");
    take(figure);
    assert.deepEqual([reading.caption.textContent, reading.readout.textContent], ["", ""]);
  }
});

test("the data of a picture goes with it, but not what the reader chose to see", () => {
  const axis = { name: "", count: 100, tick: String };
  const spec: HeatSpec = {
    ...{ title: "", key: "1", x: axis, y: axis },
    value: () => 1,
    colour: () => [0, 0, 0],
    words: () => "",
  };
  const figure = new Figure("figure");
  const [state, raster] = [new HeatState(spec), {}];
  const drawn = { raster, cellStamp: "drawn" };
  const screen = Object.assign(Object.create(HeatScreen.prototype) as object, drawn);
  Object.assign(figure, { state, screen });
  state.zoomBy({ left: 0, top: 0, right: 100, bottom: 100 }, 0.5, { x: 50, y: 50 });
  const { cells } = state;
  figure.forget();
  assert.ok(cells);
  assert.deepEqual(state.cells, cells);
  assert.equal(state.seen.value(0, 0), null);
  assert.notEqual(screen.raster, raster);
  state.reset();
  assert.deepEqual(state.seen.x, { name: "", count: 100 }, "a name of a cell may hold the data");
});

test("a figure without a picture has no colours to set", () => {
  const figure = new Figure("figure");
  const { heatTools } = figure as unknown as { heatTools: { row: Node } };
  figure.wait("The run is gone.");
  assert.ok(heatTools.row.classes.has("ds-gone"));
});

test("the picture of another run is hidden until that of this run comes", () => {
  const figure = new Figure("figure");
  const { note } = (figure as unknown as { waiting: { note: HTMLElement } }).waiting;
  assert.equal(note.hidden, true);
  figure.forget();
  assert.deepEqual([note.hidden, note.textContent], [false, "Reading …"]);
});
