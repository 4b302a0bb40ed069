import type { NdArray } from "./arrays.ts";
import type { Panel } from "./panel.ts";
import type { Query } from "./slice.ts";

/** The recording levels, in order: each has the data of those before it. */
export const LEVELS = ["off", "steps", "layers", "probe"] as const;
export type Level = (typeof LEVELS)[number];
/** The levels whose times would include the recording (`compare.UNTIMED`). */
export const UNTIMED: readonly string[] = ["layers", "probe"] satisfies Level[];

/** What all views of a lane share (`inspector.views.frame`). */
export interface Frame {
  level: Level;
  positions: number;
  /** Positions of the prompt. */
  prompt: number;
  /** Positions of a block. */
  block: number;
  /** Positions of the first block that hold tokens of the prompt; none if left out. */
  shared?: number;
  layers: number;
  steps: number;
  /** The number of its first step, from 0: a branch counts the steps before it. */
  first: number;
  /** The step that committed each position, -1 for none. */
  revealed: NdArray;
  /** 1 for answer tokens that were known before the first step. */
  before: NdArray;
  /** Final token ids. */
  ids: NdArray;
  /** Block, kind and computed rows of each step. */
  blocks: NdArray;
  kinds: NdArray;
  rows: NdArray;
  /** The rows, from the first, that each step attends to. */
  sight: NdArray;
  /**
   * Rows by which the row whose logits give a token precedes it; older replay files do not say it.
   */
  shift?: number;
  /** Whether layers, steps or positions were not recorded. */
  narrowed: boolean;
  /** The quantities whose drifts were recorded; missing in older replay files, which have all. */
  quantities?: readonly string[];
  /** Whether the run was decoded autoregressively, so that nothing can drift. */
  causal: boolean;
  /** The rule that commits tokens; missing in older replay files. */
  unmasker?: string;
  /** Names of views that the run has no data for, whatever its level. */
  lacks: readonly string[];
}

/** Whether drifts of a quantity were recorded where they were evaluated: at all rows and steps. */
export function isWhole(
  { narrowed, quantities }: Pick<Frame, "narrowed" | "quantities">,
  quantity: string,
): boolean {
  return !narrowed && (quantities?.includes(quantity) ?? true);
}

/** Why a view has no data. */
export interface Missing {
  missing: string;
}

/**
 * A list with fixed options, a slider, or (`kept`) a text that the view itself sets and that links
 * bring back.
 */
export type Control = { name: string; label: string } & (
  | { kept: true; value: string; options?: undefined }
  | { kept?: undefined; value: string; options: readonly (readonly [string, string])[] }
  | {
      kept?: undefined;
      options?: undefined;
      value: number;
      min: number;
      max: number;
      step: number;
      words: (value: number) => string;
    }
);

/** A view of the inspector. */
export interface View {
  title: string;
  /** The recording level that the view needs. */
  level: Level;
  /** The slice without which nothing of the view can be drawn; `draw` gets it as a document. */
  source?: Query;
  /** Documents of the timed run that the view reads. */
  documents?: readonly string[];
  /** What is said of a run that has no data for the view, whatever its level. */
  without?: string;
  /** What is said of a run of another engine, whose file has nothing for the view. */
  foreign?: string;
  /** What is said of a run that was decoded autoregressively, and has nothing for the view. */
  causal?: string;
  about: string;
  /** What it says of branches, where the page can branch. */
  branching?: string;
  controls?: readonly Control[];
  draw(panel: Panel, data: unknown): void;
}

/** A view whose `draw` gets its document as `Data`. */
export function viewOf<Data>(
  view: Omit<View, "draw"> & { draw(panel: Panel, data: Data): void },
): View {
  return { ...view, draw: (panel, data) => view.draw(panel, data as Data) };
}

/** Whether a lane was recorded at a level or a higher one. */
export function hasLevel(frame: Pick<Frame, "level">, level: Level): boolean {
  return LEVELS.indexOf(level) <= LEVELS.indexOf(frame.level);
}

/** Whether the plans of a run were recorded: which rows each step recomputed. */
export function hasPlans({ level }: Pick<Frame, "level">): boolean {
  return level !== "off";
}

/** A document without data is `{missing: reason}`. */
export function isMissing(document: object): document is Missing {
  return "missing" in document;
}
