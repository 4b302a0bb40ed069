/** Slices cut from the documents of a replay file, which has no server. */
import type { LaneName } from "../../race/messages.ts";
import { unpack } from "../arrays.ts";
import type { Query, Slice, SliceSource } from "../slice.ts";
import { isMissing, type Missing } from "../view.ts";
import { wholeSlice, type Cutter, type Cutters, type Documents } from "./documents.ts";
import { DRIFT_PARTS, QUERIES, SCATTER } from "./drifts.ts";
import { EXPERTS } from "./experts.ts";
import { CANDIDATES, ERROR, GUIDER } from "./lists.ts";
import { LENS_PARTS } from "./lens.ts";
import { PLAN, SCHEDULE, TOKEN } from "./plans.ts";
import { SIMILARITY } from "./similarity.ts";

const CUTTERS: Readonly<Record<string, Cutters>> = {
  frame: { facts: { needs: ["frame"], cut: ({ frame }) => wholeSlice(frame) } },
  why: { facts: { needs: ["why"], cut: ({ why }) => wholeSlice(why) } },
  plan: PLAN,
  token: TOKEN,
  schedule: SCHEDULE,
  drift: DRIFT_PARTS,
  queries: QUERIES,
  scatter: SCATTER,
  similarity: SIMILARITY,
  experts: EXPERTS,
  error: ERROR,
  lens: LENS_PARTS,
  candidates: CANDIDATES,
  guider: GUIDER,
};

/** Gives a document of a lane as it is in the file. */
export type GiveDocument = (lane: LaneName, name: string) => Record<string, unknown>;

function cutterOf({ view, part }: Query): Cutter {
  const parts = CUTTERS[view];
  return parts[part ?? Object.keys(parts)[0]];
}

/** The slice of a query, from documents with unpacked arrays. */
export function cutSlice(documents: Partial<Documents>, query: Query): Slice {
  return cutterOf(query).cut(documents as Documents, query);
}

/** Slices of a file's documents. Windows and sizes are not heeded: all cells are given. */
export function localSlices(give: GiveDocument): SliceSource {
  const unpacked = new Map<string, Promise<Record<string, unknown>>>();
  const read = (lane: LaneName, name: string): Promise<Record<string, unknown>> => {
    const key = lane + "/" + name;
    const known = unpacked.get(key) ?? unpack(give(lane, name));
    unpacked.set(key, known);
    return known;
  };
  return async ({ lane }, query): Promise<Slice | Missing> => {
    const found: Record<string, object> = {};
    for (const name of cutterOf(query).needs) {
      const document = await read(lane, name);
      if (isMissing(document)) return document;
      found[name] = document;
    }
    return cutSlice(found, query);
  };
}
