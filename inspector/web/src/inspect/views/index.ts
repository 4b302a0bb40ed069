import type { View } from "../view.ts";
import { candidates } from "./candidates.ts";
import { compare } from "./compare.ts";
import { counts } from "./counts.ts";
import { drift } from "./drift.ts";
import { error } from "./error.ts";
import { guider } from "./guider.ts";
import { queries } from "./queries.ts";
import { scatter } from "./scatter.ts";
import { schedule } from "./schedule.ts";
import { similarity } from "./similarity.ts";
import { time } from "./time.ts";

const ALL = {
  drift,
  similarity,
  counts,
  schedule,
  queries,
  error,
  scatter,
  time,
  compare,
  candidates,
  guider,
};

/** The name of a view. */
export type ViewName = keyof typeof ALL;

/** The views, in the order of their tabs. */
export const VIEWS: Record<ViewName, View> = ALL;

/** Whether a text, for instance of a link, is the name of a view. */
export function isViewName(text: string): text is ViewName {
  return Object.hasOwn(VIEWS, text);
}
