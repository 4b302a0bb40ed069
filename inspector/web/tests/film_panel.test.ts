/** The panel of the video, in a browser whose recorder waits. */
import assert from "node:assert/strict";
import test from "node:test";
import { FilmPanel } from "../src/race/film/panel.ts";
import type { Store } from "../src/race/store.ts";
import { finished } from "./races.ts";

class Node {
  open = true;
  hidden = false;
  disabled = false;
  value = "10";
  textContent = "";
  private readonly heard: Record<string, () => void> = {};
  private readonly parts: Partial<Record<string, Node>> = {};

  querySelector(selector: string): Node {
    return (this.parts[selector] ??= new Node());
  }
  addEventListener(name: string, act: () => void): void {
    this.heard[name] = act;
  }
  replaceChildren(): void {
    return;
  }
  press(): void {
    this.heard.click();
  }
}

class Recorder {
  static isTypeSupported(): boolean {
    return true;
  }
  state = "inactive";
  addEventListener(): void {
    return;
  }
  start(): void {
    return;
  }
}

class Canvas {
  captureStream(): object {
    return {};
  }
  getContext(): object {
    return new Proxy({}, { get: () => () => ({ width: 1 }), set: () => true });
  }
}

Object.assign(globalThis, {
  document: { createElement: () => new Canvas() },
  HTMLCanvasElement: Canvas,
  MediaRecorder: Recorder,
});

/** The panel of a race, and its key for the video. */
function panelOf(store: Store): [FilmPanel, Node] {
  const root = new Node();
  const panel = new FilmPanel({
    root: root as unknown as HTMLDetailsElement,
    store,
    align: () => "time",
    frames: () => store.latest(),
  });
  panel.draw();
  return [panel, root.querySelector("[data-film-video]")];
}

test("a video that is recorded can be stopped while a later run loads, and none can be begun", () => {
  for (const begun of [true, false]) {
    const store = finished();
    const [panel, key] = panelOf(store);
    if (begun) key.press();
    store.take({ run: "later", state: "loading", lanes: {} });
    panel.draw();
    const words = begun ? "Stop recording" : "Record the video";
    assert.deepEqual([key.disabled, key.textContent], [!begun, words]);
  }
});
