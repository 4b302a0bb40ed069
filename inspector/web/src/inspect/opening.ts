import type { Frame } from "./view.ts";

const [PARTIAL, REUSE] = [1, 2]; // as in `engine.core.events.KINDS`

/**
 * The step at which a run that is opened shows what its method does: of the steps that recompute
 * some rows and reuse others, the one in the middle; without such a step, the middle of the run.
 */
export function tellingStep({ kinds, steps }: Pick<Frame, "kinds" | "steps">): number {
  const all = Array.from(kinds.values);
  for (const kind of [PARTIAL, REUSE]) {
    const places = all.flatMap((one, step) => (one === kind ? [step] : []));
    if (places.length) return places[Math.floor(places.length / 2)];
  }
  return Math.floor(Math.max(steps - 1, 0) / 2);
}
