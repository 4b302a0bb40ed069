/** Views that can show both lanes beside each other. */
import type { LaneName } from "../race/messages.ts";
import type { Panel } from "./panel.ts";
import type { Control } from "./view.ts";

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

/** The documents of both lanes if both are to be shown and are there; otherwise null. */
export function bothSides<Data>(
  panel: Panel,
  source: string,
): Readonly<Record<LaneName, Data>> | null {
  const { inspector } = panel;
  const wanted = panel.choice("lanes") === "both";
  const [a, b] = [inspector.document<Data>("a", source), inspector.document<Data>("b", source)];
  const note = panel.block("sides", "p", "ds-room ds-wide");
  const there = a !== null && b !== null && inspector.frames.a && inspector.frames.b;
  note.hidden = !wanted || Boolean(there);
  note.textContent = "Only this lane has been recorded, so it is shown alone.";
  return wanted && there ? { a, b } : null;
}
