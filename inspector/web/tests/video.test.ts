/** Recordings, with a browser's recorder that does what a test says. */
import assert from "node:assert/strict";
import test from "node:test";
import { recordVideo } from "../src/race/film/video.ts";
import { raceOf, steps } from "./races.ts";

/** How many tracks of recordings were stopped. */
let ended = 0;

/** A pen that takes every command. */
const pen: unknown = new Proxy(() => undefined, {
  get: (_, name) => (name === "measureText" ? (): object => ({ width: 1 }) : pen),
  set: () => true,
  apply: () => undefined,
});

const canvas = {
  getContext: () => pen,
  captureStream: () => ({ getTracks: () => [{ stop: () => ended++ }] }),
};

/** A recorder that fails so many milliseconds after its start; 0: it does not even start. */
function failing(after: number): void {
  class Recorder extends EventTarget {
    state = "inactive";
    start(): void {
      this.state = "recording";
      if (after) setTimeout(() => this.dispatchEvent(new Event("start")));
      setTimeout(() => {
        this.state = "inactive";
        for (const name of ["error", "stop"]) this.dispatchEvent(new Event(name));
      }, after);
    }
    stop(): void {
      if (this.state === "inactive") throw new Error("it has stopped");
    }
  }
  Object.assign(globalThis, {
    document: { createElement: () => canvas },
    MediaRecorder: Recorder,
  });
}

for (const [when, after] of [
  ["before it starts", 0],
  ["while it records", 60],
] as const) {
  test(
    `a recorder that fails ${when} ends the recording with an error`,
    { timeout: 3000 },
    async () => {
      failing(after);
      ended = 0;
      const store = raceOf(steps([0]), steps([0]), { state: "done" });
      const { signal } = new AbortController();
      const wish = { store, signal, mode: "time", seconds: 60, type: "video/webm" } as const;
      const made = recordVideo({ ...wish, onProgress: () => undefined });
      await assert.rejects(made, /recorder stopped/);
      assert.equal(ended, 1);
    },
  );
}
