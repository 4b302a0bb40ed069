/** The video of a race, recorded from a canvas in real time. */
import { make } from "../../base/dom.ts";
import type { Align, Frames, Store } from "../store.ts";
import { canvasMeasure, paint } from "./shapes.ts";
import { SIZE, videoFrame } from "./video_frame.ts";
import { withDuration } from "./webm.ts";

const RATE = 30; // pictures per second
const BITS = 6_000_000; // per second
const HOLD = { start: 0.5, end: 2 }; // seconds that the first and the last picture stand
const TYPES = ["video/webm;codecs=vp9", "video/webm;codecs=vp8", "video/webm", "video/mp4"];

/** A finished video; `ending` is that of its file name. */
export interface Video {
  blob: Blob;
  ending: string;
}

/** The type of video that the browser can record; null if it cannot record any. */
export function videoType(): string | null {
  if (typeof MediaRecorder === "undefined") return null;
  if (!("captureStream" in HTMLCanvasElement.prototype)) return null;
  return TYPES.find((type) => MediaRecorder.isTypeSupported(type)) ?? null;
}

/** How much of the race a video of `seconds` shows after `elapsed` seconds, from 0 to 1. */
export function shareAt(elapsed: number, seconds: number): number {
  const moving = Math.max(seconds - HOLD.start - HOLD.end, 1e-3);
  return Math.min(Math.max((elapsed - HOLD.start) / moving, 0), 1);
}

/** The frames of both lanes at a share of the race. */
export function framesAtShare(store: Store, mode: Align, share: number): Frames {
  if (share >= 1) return store.latest();
  const later = share > 0 ? Infinity : 0;
  return store.frames(mode, { value: share * store.extent(mode), later });
}

/** What a recording is made of. */
export interface Wish {
  store: Store;
  mode: Align;
  seconds: number;
  type: string;
  /** Ends the recording without a video. */
  signal: AbortSignal;
  /** Told how many seconds are recorded. */
  onProgress: (elapsed: number) => void;
}

/** Record a video, which takes as long as it lasts; null if it was ended before. */
export async function recordVideo(wish: Wish): Promise<Video | null> {
  const canvas = make("canvas");
  Object.assign(canvas, SIZE);
  const pen = canvas.getContext("2d");
  if (!pen) throw new Error("the browser gave no canvas to draw on");
  const draw = (share: number): void => {
    const frames = framesAtShare(wish.store, wish.mode, share);
    paint(pen, videoFrame(wish.store, frames, canvasMeasure(pen)));
  };
  draw(0);
  const stream = canvas.captureStream(RATE);
  const recorder = new MediaRecorder(stream, { mimeType: wish.type, videoBitsPerSecond: BITS });
  const parts: Blob[] = [];
  recorder.addEventListener("dataavailable", ({ data }) => parts.push(data));
  const stopped = new Promise((done) => recorder.addEventListener("stop", done));
  const begun = new Promise((done) => recorder.addEventListener("start", done));
  recorder.start();
  let length = 0;
  try {
    await Promise.race([begun, stopped]); // a recorder that fails only stops
    if (recorder.state === "recording") length = await play(wish, draw, recorder);
    if (recorder.state !== "recording") throw new Error("the browser's recorder stopped");
  } finally {
    if (recorder.state === "recording") recorder.stop();
    await stopped;
    for (const track of stream.getTracks()) track.stop();
  }
  if (wish.signal.aborted) return null;
  const ending = wish.type.startsWith("video/mp4") ? "mp4" : "webm";
  return { blob: await whole(parts, wish.type, length, ending), ending };
}

/** Draw the race in real time, as long as it is recorded; returns its length in milliseconds. */
async function play(
  wish: Wish,
  draw: (share: number) => void,
  recorder: MediaRecorder,
): Promise<number> {
  const start = performance.now();
  for (;;) {
    const elapsed = (performance.now() - start) / 1000;
    draw(shareAt(elapsed, wish.seconds));
    const over = elapsed >= wish.seconds || wish.signal.aborted;
    if (over || recorder.state !== "recording") return elapsed * 1000;
    wish.onProgress(elapsed);
    await new Promise((done) => setTimeout(done, 1000 / RATE));
  }
}

async function whole(
  parts: readonly Blob[],
  type: string,
  ms: number,
  ending: string,
): Promise<Blob> {
  const bytes = new Uint8Array(await new Blob([...parts]).arrayBuffer());
  const kind = type.split(";")[0];
  return new Blob([ending === "webm" ? withDuration(bytes, ms) : bytes], { type: kind });
}
