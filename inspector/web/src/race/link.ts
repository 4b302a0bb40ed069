/** Links to a view of a race: how they are written and read, and what is left to press. */
import type { Spot } from "../inspect/cursor.ts";
import { MASK_AGAIN } from "../inspect/inspector_options.ts";
import { LEVELS, type Frame, type Level } from "../inspect/view.ts";
import { isViewName, VIEWS, type ViewName } from "../inspect/views/index.ts";
import type { Lane } from "./lane.ts";
import type { LaneName, LinkSource } from "./messages.ts";

/** The cursor in a link: lane, step, layer and, if a token is chosen, position, counted from 1. */
const CURSOR_KEY = /^([ab])\.([1-9]\d{0,3})\.([1-9]\d{0,3})(?:\.([1-9]\d{0,4}))?$/;
/** A branch in a link: lane, step, edits and settings (`inspector.page_data.links`). */
const BRANCH =
  /^([ab])\.([1-9]\d{0,5})(?:\.([1-9]\d{0,4}-(?:m|\d{1,7})(?:,[1-9]\d{0,4}-(?:m|\d{1,7}))*))?(\?.*)?$/;
/** The name of a view's control and its value, in a link. */
const CHOICE = /^([a-z_]+)\.(.*)$/s;
/** The parts of a link that are not settings. */
const PARTS = ["cursor", "look", "show", "align", "colour", "branch", "recorded"];
const FOREIGN = ["view", "deep_link", "logs", "lesson"];

/** A cursor of a link: its layer is known. */
export type LinkedSpot = Spot & { layer: number };

/** What the page shows of a race, as it stands in a link; an empty part is left out. */
export interface Look {
  cursor: string;
  look: string;
  show: string;
  align: string;
  colour: string;
}

/** A branch that a link names. */
export interface LinkedBranch {
  lane: LaneName;
  step: number;
  edits: [number, number][];
  /** `parent`, or a query after `?`. */
  settings: string;
}

/** What a link says of the page; a part is null or empty if the link says nothing valid of it. */
export interface Wanted {
  cursor: LinkedSpot | null;
  look: ViewName | null;
  /** Choices of the view's controls. */
  show: [string, string][];
  align: string;
  colour: string;
  branches: string[];
  recorded: string;
  /** The settings, in the order of their names. */
  settings: string;
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

function readChoice(text: string): [string, string][] {
  const found = CHOICE.exec(text);
  return found ? [[found[1], found[2]]] : [];
}

/** Settings in the order of their names, without the other parts of a link. */
function sorted(query: URLSearchParams): string {
  const settings = new URLSearchParams();
  const skipped = new Set([...PARTS, ...FOREIGN]);
  for (const [name, value] of query)
    if (!skipped.has(name) && !name.startsWith("__")) settings.append(name, value);
  settings.sort();
  return settings.toString();
}

/** What the query of a link says. */
export function readLink(search: string): Wanted {
  const query = new URLSearchParams(search);
  const get = (name: string): string => query.get(name) ?? "";
  const look = get("look");
  return {
    cursor: readCursor(get("cursor")),
    look: isViewName(look) ? look : null,
    show: get("show").split(",").flatMap(readChoice),
    align: get("align"),
    colour: get("colour"),
    branches: query.getAll("branch").filter((text) => readBranch(text)),
    recorded: get("recorded"),
    settings: sorted(query),
  };
}

/** A branch of a link; null if it is none. */
export function readBranch(text: string): LinkedBranch | null {
  const found = BRANCH.exec(text);
  if (!found) return null;
  const [, lane, step, edits, settings] = found as (string | undefined)[];
  return {
    lane: lane === "a" ? "a" : "b",
    step: Number(step) - 1,
    edits: (edits ?? "")
      .split(",")
      .filter(Boolean)
      .map((edit) => {
        const [place, id] = edit.split("-");
        return [Number(place) - 1, id === "m" ? MASK_AGAIN : Number(id)];
      }),
    settings: settings ?? "parent",
  };
}

/** The link to a race and to what the page shows of it; `page` is the page without a query. */
export function viewLink(page: string, source: LinkSource, look: Look): string {
  const query = new URLSearchParams();
  for (const branch of source.branches) query.append("branch", branch);
  if (source.recorded) query.set("recorded", source.recorded);
  for (const [name, value] of Object.entries(look)) if (value) query.set(name, String(value));
  return page + "?" + [source.query, query.toString()].filter(Boolean).join("&");
}

/** Choices of a view's controls as they stand in a link. */
export function showKey(choices: readonly (readonly [string, string])[]): string {
  return choices.map(([name, value]) => `${name}.${value}`).join(",");
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

/** A cursor as it stands in a link; empty as long as its layer is not known. */
export function cursorKey({ lane, step, layer, position }: Readonly<Spot>): string {
  if (layer === null) return "";
  const places = position === null ? [step, layer] : [step, layer, position];
  return [lane, ...places.map((place) => place + 1)].join(".");
}

/** The names of the keys that record at a level. */
export const RECORD_KEYS: Partial<Record<Level, string>> = {
  layers: "Record",
  probe: "Record and probe",
};

/** What has to be pressed before the page shows what a link names. */
export type Missing =
  { press: "run" } | { press: "record"; level: Level } | { press: "branch"; branch: LinkedBranch };

/** The race on the page: what its own link needs, its state, and a lane's recording. */
export interface Shown {
  link: LinkSource | null;
  state: string;
  level: Level | undefined;
}

/** What is left to press; null if the race is there, with all that the view needs. */
export function missing(wanted: Wanted, { link, state, level }: Shown): Missing | null {
  const brought = ["empty", "example", "imported"].includes(state);
  const same = link !== null && sorted(new URLSearchParams(link.query)) === wanted.settings;
  if (wanted.settings && brought && !same) return { press: "run" };
  const done = link?.branches ?? [];
  if (done.some((text, i) => text !== wanted.branches[i])) return null; // a branch of the reader's own
  const next = wanted.branches.at(done.length);
  const branch = next === undefined ? null : readBranch(next);
  if (branch) return { press: "branch", branch };
  const needs = wanted.look ? VIEWS[wanted.look].level : "off";
  const lacks = level !== undefined && LEVELS.indexOf(needs) > LEVELS.indexOf(level);
  return lacks ? { press: "record", level: needs === "probe" ? "probe" : "layers" } : null;
}

/** What tells whether it helps to say what is left to press. */
export interface Standing {
  /** The settings of the link were refused, so the page has others. */
  invalid: boolean;
  /** The race can be recorded, and the view of the link is open. */
  recordable: boolean;
  /** The run of the link was on the page before. */
  seen: boolean;
}

/** Whether to say what is left to press: not if the key would do nothing, or something else. */
export function worthSaying(left: Missing, { invalid, recordable, seen }: Standing): boolean {
  if (left.press === "record") return recordable;
  return !seen && !(left.press === "run" && invalid);
}

/** What a link shows whose settings cannot be run, in words. */
export function refusedWords(wanted: Wanted): string {
  const view = wanted.look ? `the view “${VIEWS[wanted.look].title}” of a run with ` : "";
  const shows = view ? "shows " + view : "brings ";
  return `This link ${shows}the settings above, but they cannot be run: the plan says why. Change them, then press Run.`;
}

/** What is left to press, in words; `before` are the steps of the runs that each lane continues. */
export function missingWords(
  wanted: Wanted,
  left: Missing,
  before: Record<LaneName, number>,
): string {
  const view = wanted.look ? `the view “${VIEWS[wanted.look].title}”` : "a place";
  if (left.press === "run" && !wanted.look && !wanted.cursor && !wanted.branches.length)
    return "This link brings the settings above. Press Run to see their race.";
  if (left.press === "run")
    return `This link shows ${view} of a run with the settings above. Press Run; it opens when the run ends.`;
  if (left.press === "record")
    return `This link shows ${view}, which needs a recording. Press ${RECORD_KEYS[left.level]}.`;
  const { lane, step, edits } = left.branch;
  const tokens = edits.map(([place]) => String(place + 1)).join(", ");
  const noun = edits.length > 1 ? "tokens" : "token";
  const changed = tokens ? `, with answer ${noun} ${tokens} changed` : "";
  return `This link goes on from before step ${before[lane] + step + 1} of lane ${lane.toUpperCase()}${changed}. Press Branch.`;
}
