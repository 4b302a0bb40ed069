/** The keys with which a reader chooses a probed step. */
import { make } from "../base/dom.ts";
import type { Panel } from "./panel.ts";

/** The index of the value next to a target; of equally near ones the first. */
export function nearest(values: readonly number[], target: number): number {
  const far = (i: number): number => Math.abs(values[i] - target);
  return values.reduce((best, _, i) => (far(i) < far(best) ? i : best), 0);
}

/** Show a key for each probed step; that with the index `probe` is pressed. */
export function drawProbedSteps(panel: Panel, steps: readonly number[], probe: number): void {
  const box = panel.block("steps", "div", "ds-steps ds-wide");
  const key = [panel.cursor.lane, panel.inspector.key, ...steps].join();
  if (box.dataset.key !== key) {
    box.dataset.key = key;
    box.setAttribute("role", "group");
    box.setAttribute("aria-label", "Probed step");
    const keys = steps.map((step) => stepKey(panel, step));
    box.replaceChildren(make("span", "", "Probed steps:"), ...keys);
  }
  box.hidden = !steps.length;
  for (const [i, node] of box.querySelectorAll("button").entries())
    node.setAttribute("aria-pressed", String(i === probe));
}

function stepKey(panel: Panel, step: number): HTMLButtonElement {
  const key = make("button", "ds-pick", String(panel.number(step)));
  key.type = "button";
  key.dataset.probe = String(step);
  key.setAttribute("aria-label", `Step ${panel.number(step)}`);
  key.addEventListener("click", () => panel.inspector.cursor.move({ step }));
  return key;
}
