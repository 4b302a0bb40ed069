import type { Component } from "../base/component.ts";
import { localSlices } from "../inspect/replay_slices/index.ts";
import type { LaneName, News } from "./messages.ts";

/** What a replay file holds (`inspector.files.replay`): a race, and its views by lane and name. */
export interface ReplayData {
  race: News;
  views: Partial<Record<LaneName, Record<string, Record<string, unknown>>>>;
}

const LEFT_OUT = { missing: "This file holds no such view; see the note at its head." };

/** The component of a replay file: its server answers from the file's data. */
export function replayComponent(element: HTMLElement, data: ReplayData): Component {
  const value = JSON.stringify(data.race);
  const view = (lane: LaneName, name: string): Record<string, unknown> =>
    data.views[lane]?.[name] ?? LEFT_OUT;
  return {
    element,
    props: { value, offline: true },
    trigger: () => undefined,
    watch: () => undefined,
    server: {
      replay: () => Promise.resolve(value),
      view: (...[, lane, name]) =>
        Promise.resolve(JSON.stringify(view(lane as LaneName, String(name)))),
    },
    slices: localSlices(view),
  };
}
