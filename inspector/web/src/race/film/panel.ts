/** The panel that saves a race as a video or as a film strip. */
import { save } from "../../base/download.ts";
import { make, part, write } from "../../base/dom.ts";
import { plural } from "../../base/format.ts";
import { svgText } from "../../figures/export.ts";
import { element, FONTS, paperSheet } from "../../figures/svg.ts";
import type { Align, Frames, Store } from "../store.ts";
import { canvasMeasure, drawShapes, type Measure } from "./shapes.ts";
import { captionWords, tellingFrames, filmStrip } from "./strip.ts";
import { recordVideo, videoType } from "./video.ts";

const MOMENTS = 5; // of a film strip for which none were chosen
const MOST = 8;
const NONE_CHOSEN =
  "No moment is chosen: the file shows four until the first lane is done, and the end.";
const NO_VIDEO = "This browser cannot record a video.";

/** What the panel needs from the race. */
export interface FilmOptions {
  root: HTMLDetailsElement;
  store: Store;
  /** How the lanes are aligned, and their frames at the moment. */
  align: () => Align;
  frames: () => Frames;
}

/** The controls of the video and of the film strip. */
export class FilmPanel {
  private readonly root: HTMLDetailsElement;
  private readonly store: Store;
  private readonly align: () => Align;
  private readonly frames: () => Frames;
  private readonly type = videoType();
  private recording: AbortController | null = null;
  /** The chosen moments, and the lanes they belong to. */
  private moments: Frames[] = [];
  private lanes: Store["lanes"] | null = null;

  constructor({ root, store, align, frames }: FilmOptions) {
    this.root = root;
    this.store = store;
    this.align = align;
    this.frames = frames;
    root.addEventListener("toggle", () => this.draw());
    this.key("video").addEventListener("click", () => void this.video());
    this.key("add").addEventListener("click", () => this.add());
    this.key("clear").addEventListener("click", () => this.clear());
    this.key("strip").addEventListener("click", () => this.strip());
  }

  private find<E extends HTMLElement = HTMLElement>(name: string): E {
    return part<E>(this.root, `[data-film-${name}]`);
  }

  private key(name: string): HTMLButtonElement {
    return this.find<HTMLButtonElement>(name);
  }

  /** Draw the panel, if it is open; another race ends a recording. */
  draw(): void {
    const { store, type, recording } = this;
    if (store.lanes !== this.lanes) {
      this.lanes = store.lanes;
      this.moments = [];
      recording?.abort();
    }
    if (!this.root.open) return;
    const ready = !store.live && store.started.some((lane) => lane.rows.length > 0);
    const video = this.key("video");
    const label = recording ? "Stop recording" : "Record the video";
    write(video, type ? label : NO_VIDEO);
    video.disabled = !type || !(ready || recording); // while a later run loads, it can be stopped
    this.find<HTMLSelectElement>("seconds").disabled = !type || !ready || recording !== null;
    this.key("add").disabled = !ready || this.moments.length >= MOST;
    this.key("clear").disabled = !this.moments.length;
    this.key("strip").disabled = !ready;
    this.find("moments").replaceChildren(...this.momentItems());
  }

  private momentItems(): HTMLElement[] {
    const { store } = this;
    if (!this.moments.length) {
      return [make("li", "", NONE_CHOSEN)];
    }
    return this.moments.map((frames) => {
      const words = store.started.map((lane) => {
        return lane.name.toUpperCase() + " " + captionWords(store, lane, frames[lane.name]);
      });
      return make("li", "", words.join("; "));
    });
  }

  private add(): void {
    const now = this.frames();
    const known = this.moments.some(({ a, b }) => a === now.a && b === now.b);
    if (!known) this.moments.push({ ...now });
    this.moments.sort((one, other) => one.a - other.a || one.b - other.b);
    this.draw();
    if (this.key("add").disabled) this.key("strip").focus();
  }

  private clear(): void {
    this.moments = [];
    this.draw();
    this.key("add").focus();
  }

  private fileName(ending: string): string {
    return `driftscope-${(this.store.run ?? "race").slice(0, 8)}-race.${ending}`;
  }

  private strip(): void {
    const { store } = this;
    const chosen = this.moments.length ? this.moments : tellingFrames(store, this.align(), MOMENTS);
    const { width, height, shapes } = filmStrip(store, chosen, measureOfPaper());
    const box = `0 0 ${width} ${height}`;
    const root = element("svg", { width, height, viewBox: box, "font-family": FONTS.paper });
    drawShapes(
      paperSheet(root, (colour) => colour),
      shapes,
    );
    save(this.fileName("svg"), new Blob([svgText(root)], { type: "image/svg+xml" }));
  }

  private async video(): Promise<void> {
    if (this.recording) return this.recording.abort();
    const { store, type } = this;
    if (!type) return;
    const seconds = Number(this.find<HTMLSelectElement>("seconds").value);
    const recording = new AbortController();
    this.recording = recording;
    this.draw();
    const bar = this.find<HTMLProgressElement>("bar");
    bar.hidden = false;
    bar.max = seconds;
    this.say(`Recording for ${plural(seconds, "second")}.`);
    const onProgress = (elapsed: number): void => void (bar.value = elapsed);
    const wish = { store, mode: this.align(), seconds, type, signal: recording.signal, onProgress };
    try {
      const made = await recordVideo(wish);
      if (made) save(this.fileName(made.ending), made.blob);
      this.say(made ? "The video is saved." : "Stopped: no video is saved.");
    } catch (error) {
      this.say("No video: " + (error instanceof Error ? error.message : String(error)));
    } finally {
      this.recording = null;
      bar.hidden = true;
      this.draw();
    }
  }

  private say(words: string): void {
    write(this.find("said"), words);
  }
}

function measureOfPaper(): Measure {
  const pen = make("canvas").getContext("2d");
  return pen ? canvasMeasure(pen) : (text, { size }) => text.length * size * 0.55;
}
