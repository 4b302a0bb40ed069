import type { Spot } from "../inspect/cursor.ts";
import type { Inspector } from "../inspect/inspector.ts";
import type { Frame } from "../inspect/view.ts";
import { HOME, isViewName, type ViewName } from "../inspect/views/index.ts";
import { tellLook } from "./events.ts";
import type { Lane } from "./lane.ts";

/** The cursor in a link: lane, step, layer and, if a token is chosen, position, counted from 1. */
const CURSOR_KEY = /^([ab])\.([1-9]\d{0,3})\.([1-9]\d{0,3})(?:\.([1-9]\d{0,4}))?$/;

/** A cursor of a link: its layer is known. */
export type LinkedSpot = Spot & { layer: number };

/** What a link says of the inspector; null if it says nothing that is valid. */
export interface Wanted {
  cursor: LinkedSpot | null;
  look: ViewName | null;
}

function readCursor(text: string): LinkedSpot | null {
  const found = CURSOR_KEY.exec(text);
  if (!found) return null;
  const [, lane, step, layer, position] = found as (string | undefined)[];
  return {
    lane: lane === "a" ? "a" : "b",
    step: Number(step) - 1,
    layer: Number(layer) - 1,
    position: position === undefined ? null : Number(position) - 1,
  };
}

/** The cursor and the view that the query of a link names. */
export function readLink(search: string): Wanted {
  const query = new URLSearchParams(search);
  const look = query.get("look") ?? "";
  return { cursor: readCursor(query.get("cursor") ?? ""), look: isViewName(look) ? look : null };
}

/** Whether a lane with a frame has the place of a cursor. */
export function fits(
  cursor: LinkedSpot,
  lane: Pick<Lane, "start">,
  frame: Pick<Frame, "steps" | "layers" | "positions"> | undefined,
): boolean {
  if (!lane.start || !frame) return false;
  if (cursor.step >= frame.steps || cursor.layer >= Math.max(frame.layers, 1)) return false;
  return cursor.position === null || cursor.position < frame.positions;
}

/** A cursor as it stands in a link; empty where the inspector itself has put it, at `home`. */
export function cursorKey(
  spot: Readonly<Spot>,
  frame: Pick<Frame, "layers"> | undefined,
  home: Pick<Spot, "lane" | "step">,
): string {
  const { lane, step, layer, position } = spot;
  if (!frame || layer === null) return "";
  const rests = lane === home.lane && step === home.step && position === null;
  if (rests && layer === Math.floor(frame.layers / 2)) return "";
  const places = position === null ? [step, layer] : [step, layer, position];
  return [lane, ...places.map((place) => place + 1)].join(".");
}

/** Brings the inspector to the place that the page's link names, and tells where it is. */
export class Link {
  private readonly wanted = readLink(location.search);
  private told = "";
  /** The run whose cursor was moved to the wanted place, and the cursor there. */
  private run: string | null | undefined;
  private key = "";

  constructor(private readonly inspector: Inspector) {
    if (this.wanted.cursor || this.wanted.look) inspector.seen = true;
    if (this.wanted.look) inspector.open(this.wanted.look);
    const watch = new MutationObserver(() => {
      this.follow();
      this.tell();
    });
    watch.observe(inspector.root, { attributeFilter: ["data-lane", "data-view"] });
  }

  private now(): string {
    const { cursor, frames, home } = this.inspector;
    return cursorKey(cursor.pinned, frames[cursor.pinned.lane], home);
  }

  /** Move the cursor to the wanted place of each run, until the reader moves it elsewhere. */
  private follow(): void {
    const { store, frames, cursor } = this.inspector;
    const wanted = this.wanted.cursor;
    if (!wanted || store.live || !frames[wanted.lane]) return;
    if (this.run === store.run) {
      if (this.now() !== this.key) this.wanted.cursor = null;
    } else if (fits(wanted, store.lanes[wanted.lane], frames[wanted.lane])) {
      this.run = store.run;
      cursor.move(wanted, wanted.position !== null);
      this.key = this.now();
    }
  }

  private tell(): void {
    const { name } = this.inspector;
    const detail = { cursor: this.now(), look: name === HOME ? "" : name };
    const told = JSON.stringify(detail);
    if (told === this.told) return;
    this.told = told;
    tellLook(detail);
  }
}
