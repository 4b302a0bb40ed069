/** What the inspector needs from the race, and what it asks of it. */
import type { LaneName } from "../race/messages.ts";
import type { Align, Store } from "../race/store.ts";
import type { Spot } from "./cursor.ts";
import type { SliceSource } from "./slice.ts";

/** Asks the server for a document of a lane: a JSON text. */
export type Ask = (run: string, lane: LaneName, name: string) => Promise<string>;

/** The id that stands for a mask in the edits of a branch. */
export const MASK_AGAIN = -1;

/** A wish to continue a lane of a run from before a step. */
export interface Branch {
  run: string | null;
  lane: LaneName;
  step: number;
  /** `parent`: with the settings of the run; `form`: with those of lane B in the form. */
  settings: string;
  /** Answer tokens and the ids that they get; MASK_AGAIN masks a token again. */
  edits: readonly (readonly [number, number])[];
}

/** A wish to record the runs again. */
export interface RecordWish {
  level: "layers" | "probe";
  /** Steps to probe, from 0 and counted with those before a branch; none: spread evenly. */
  probe_at: readonly number[];
}

/** Whether the race can be recorded from the page. */
export function canRecord(to: { offline: () => boolean; store: Store }): boolean {
  return !to.offline() && to.store.recordable;
}

/** What the inspector needs from the race. */
export interface InspectorOptions {
  root: HTMLElement;
  store: Store;
  ask: Ask;
  /** Gives the slices that the views draw. */
  source: SliceSource;
  /** The pinned spot has moved. */
  onMove: (spot: Readonly<Spot>) => void;
  /** The reader asks for a branch. */
  onBranch: (branch: Branch) => void;
  /** The reader asks for a recording. */
  onRecord: (wish: RecordWish) => void;
  /** How the frames of the two lanes are matched at the moment. */
  align: () => Align;
  /** Whether a recorded example is shown of which the reader has seen nothing yet but the end. */
  atRest: () => boolean;
  /** The page is a replay file: nothing can be recorded. */
  offline: () => boolean;
}
