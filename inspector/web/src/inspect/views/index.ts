import type { View } from "../view.ts";
import { candidates } from "./candidates.ts";
import { compare } from "./compare.ts";
import { counts } from "./counts.ts";
import { drift } from "./drift.ts";
import { error } from "./error.ts";
import { experts } from "./experts.ts";
import { guider } from "./guider.ts";
import { lens } from "./lens.ts";
import { queries } from "./queries.ts";
import { scatter } from "./scatter.ts";
import { schedule } from "./schedule.ts";
import { similarity } from "./similarity.ts";
import { time } from "./time.ts";
import { whatIf } from "./what_if.ts";

const ALL = {
  drift,
  similarity,
  scatter,
  experts,
  schedule,
  counts,
  queries,
  error,
  lens,
  time,
  compare,
  candidates,
  what_if: whatIf,
  guider,
};

/** The name of a view. */
export type ViewName = keyof typeof ALL;

/** The views by name. */
export const VIEWS: Record<ViewName, View> = ALL;

/** The views in the order of their tabs, by the question that they answer. */
export const GROUPS: readonly { title: string; views: readonly ViewName[] }[] = [
  { title: "What drifted?", views: ["drift", "similarity", "scatter", "experts"] },
  { title: "What was recomputed?", views: ["schedule", "counts", "queries"] },
  {
    title: "What did it cost and change?",
    views: ["error", "lens", "time", "compare", "candidates", "what_if", "guider"],
  },
];

/** The view that is open at first. */
export const HOME: ViewName = "schedule";

/** Whether a text, for instance of a link, is the name of a view. */
export function isViewName(text: string): text is ViewName {
  return Object.hasOwn(VIEWS, text);
}
