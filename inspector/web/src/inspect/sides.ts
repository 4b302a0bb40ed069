/** Views that can show both lanes beside each other. */
import { LANES } from "../race/messages.ts";
import type { Panel } from "./panel.ts";
import { hasLevel, type Control, type Level } from "./view.ts";

/** The control that chooses between one lane and both. */
export const SIDES_CONTROL: Control = {
  name: "lanes",
  label: "Lanes",
  value: "one",
  options: [
    ["one", "the lane of the cursor"],
    ["both", "A and B side by side"],
  ],
};

/** Whether both lanes are to be shown, and can be; a note says if they cannot. */
export function bothSides(panel: Panel, level: Level = "layers"): boolean {
  const wanted = panel.choice("lanes") === "both";
  const lack = lackOfSides(panel, level);
  const note = panel.block("sides", "p", "ds-room ds-wide");
  note.hidden = !wanted || !lack;
  note.textContent = lack;
  return wanted && !lack;
}

/** Why the lanes cannot be shown beside each other; empty if they can. */
function lackOfSides({ name, inspector: { frames, store } }: Panel, level: Level): string {
  const idle = LANES.find((lane) => frames[lane]?.steps === 0);
  if (idle) return `Lane ${idle.toUpperCase()} took no step, so this lane is shown alone.`;
  const recorded = LANES.every((lane) => {
    const frame = frames[lane];
    return frame && hasLevel(frame, level) && !frame.lacks.includes(name);
  });
  if (!recorded) return "Only this lane was recorded for this view, so it is shown alone.";
  const apart = store.summary?.apart ?? "";
  if (apart) return apart + " This lane is shown alone.";
  return frames.a?.layers === frames.b?.layers
    ? ""
    : "The models of the lanes have different numbers of layers, so this lane is shown alone.";
}
