import { hasLevel, type Frame, type Level, type View } from "./view.ts";
import { VIEWS, type ViewName } from "./views/index.ts";

const LEVEL_WORDS: Record<Level, string> = {
  off: "tokens",
  steps: "plans",
  layers: "drifts",
  probe: "exact values (probe)",
};

/** A lane of a run: its frame, and the recording level at which its times were taken. */
export interface LaneFacts {
  frame: Pick<Frame, "level" | "lacks">;
  record: string;
}

/** What a run lacks that was not recorded at the level of a view. */
export function levelWords(view: Pick<View, "level">): string {
  return "This run has no recorded " + LEVEL_WORDS[view.level] + ".";
}

function emptyIn(name: ViewName, { frame, record }: LaneFacts): string {
  if (!hasLevel(frame, VIEWS[name].level)) return levelWords(VIEWS[name]);
  if (name === "time" && record !== "off") return "This run was recorded, so it has no times.";
  return frame.lacks.includes(name) ? "This run has no data for this view." : "";
}

/** The views that have nothing to show for any lane of a run, with the reason. */
export function emptyViews(lanes: readonly LaneFacts[]): Map<ViewName, string> {
  const out = new Map<ViewName, string>();
  if (!lanes.length) return out;
  for (const name of Object.keys(VIEWS) as ViewName[]) {
    const reasons = lanes.map((lane) => emptyIn(name, lane));
    if (reasons.every(Boolean)) out.set(name, reasons[0]);
  }
  if (lanes.length < 2) out.set("compare", "Only one lane was run.");
  return out;
}
