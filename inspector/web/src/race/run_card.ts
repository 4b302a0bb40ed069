import type { Inspector } from "../inspect/inspector.ts";
import type { LaneName } from "./messages.ts";

/** The run card of a lane (`inspector.views`); a run that continues another one has a start. */
interface RunCard {
  spec?: { start?: unknown };
}

/** The run card of the race as JSON text; empty if it goes on, or has changed meanwhile. */
export async function cardText(inspector: Inspector): Promise<string> {
  const { store } = inspector;
  const { run } = store;
  if (store.live) return "";
  const lanes: Partial<Record<LaneName, RunCard>> = {};
  for (const { name } of store.started) lanes[name] = await inspector.fetch(name, "run_card");
  if (run === null || run !== store.run) return "";
  const name = run.slice(0, 8);
  const branch = Object.values(lanes).some((card) => card.spec?.start);
  const repeat =
    branch || store.foreign
      ? null
      : "python -m engine repeat driftscope-" + name + "-run-card.json";
  return JSON.stringify({ run: name, lanes, summary: store.summary, repeat }, null, 1);
}
