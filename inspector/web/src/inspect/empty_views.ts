import type { Lack } from "../race/messages.ts";
import { hasLevel, UNTIMED, type Frame, type Level, type View } from "./view.ts";
import { VIEWS, type ViewName } from "./views/index.ts";

const LEVEL_WORDS: Record<Level, string> = {
  off: "tokens",
  steps: "plans",
  layers: "drifts",
  probe: "exact values (probe)",
};

const RECORDED: readonly Level[] = ["layers", "probe"];
/** Said of an autoregressive run in place of what drifts or is reused inexactly. */
export const CAUSAL =
  "This lane is decoded autoregressively: a token attends to those before it only, so its keys and values never change. Nothing drifts and nothing is reused inexactly, so there is nothing to show here.";

/** A lane of a run: its frame, and the recording level at which its times were taken. */
export interface LaneFacts {
  frame: Pick<Frame, "level" | "lacks" | "causal">;
  record: string;
  lacks: readonly Lack[];
}

/** What a run lacks for a view: one not recorded at its level, or one of another engine. */
export function levelWords(
  view: Pick<View, "level" | "foreign">,
  foreign = false,
  causal = false,
): string {
  if (causal && RECORDED.includes(view.level)) return CAUSAL;
  const words = LEVEL_WORDS[view.level];
  if (foreign)
    return view.foreign ?? `This run was decoded by another engine: its file has no ${words}.`;
  return "This run has no recorded " + words + ".";
}

function emptyIn(name: ViewName, { frame, record, lacks }: LaneFacts): string {
  const foreign = lacks.length > 0;
  if (foreign && !["compare", "time"].includes(name)) return levelWords(VIEWS[name], true);
  if (foreign && name === "time")
    return "This run was decoded by another engine: its file has no FLOPs.";
  if (frame.causal && VIEWS[name].causal) return VIEWS[name].causal;
  if (!hasLevel(frame, VIEWS[name].level)) return levelWords(VIEWS[name], false, frame.causal);
  if (name === "time" && UNTIMED.includes(record))
    return "The layers of this run were recorded, so it has no times.";
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
