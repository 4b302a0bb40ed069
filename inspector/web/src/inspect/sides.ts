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
  const { frames, store } = panel.inspector;
  const wanted = panel.choice("lanes") === "both";
  const recorded = LANES.every((lane) => {
    const frame = frames[lane];
    return frame && hasLevel(frame, level) && !frame.lacks.includes(panel.name);
  });
  const apart = store.summary?.apart ?? "";
  const note = panel.block("sides", "p", "ds-room ds-wide");
  note.hidden = !wanted || (recorded && !apart);
  note.textContent = recorded
    ? apart + " This lane is shown alone."
    : "Only this lane was recorded for this view, so it is shown alone.";
  return wanted && recorded && !apart;
}
