import { write } from "../../base/dom.ts";
import { number, plural } from "../../base/format.ts";
import { READING } from "../../base/unread.ts";
import { inks } from "../../figures/inks.ts";
import type { LaneName } from "../../race/messages.ts";
import { laneSeries, placesOf, stepAt, stepAxis } from "../axes.ts";
import type { Inspector } from "../inspector.ts";
import type { Panel } from "../panel.ts";
import { stepCosts, type CostUnit, type StepCosts, type TimeData } from "../step_costs.ts";
import { isMissing, type View } from "../view.ts";
import { drawSweep } from "./sweep.ts";

interface LaneCosts {
  name: LaneName;
  costs: StepCosts;
}

const ROOM = 1.05; // the axes end this much above the largest value

/** The time and the FLOPs of each step, and the measured sweep. */
export const time: View = {
  title: "Time",
  level: "off",
  documents: ["time", "rho"],
  about:
    "The time of each step of the timed run, measured by the engine, and the FLOPs of each step. Both lanes have the same scale; the chart below shows the cumulative sums. " +
    "FLOPs are counted separately for each part of the network; times are not. The last figure is a measured sweep over dLLM-Cache's ratio on the embedded model (dLLM-Cache, figure 6).",
  controls: [
    {
      name: "unit",
      label: "Show",
      value: "ms",
      options: [
        ["ms", "milliseconds"],
        ["flops", "GFLOPs"],
      ],
    },
  ],
  draw(panel) {
    const shown = laneCosts(panel);
    const note = panel.block("untimed", "p", "ds-wide");
    const why = lackOf(panel);
    note.hidden = !why;
    write(note, why);
    for (const name of ["a", "b"] as const) {
      panel.figure("time-" + name).root.hidden = !shown.some((lane) => lane.name === name);
    }
    panel.figure("time-sum").root.hidden = !shown.length;
    const most = Math.max(0, ...shown.flatMap(({ costs }) => costs.total));
    const { lanes } = panel.inspector.store;
    const ends = shown.map(({ name, costs }) => lanes[name].before + costs.total.length);
    const steps = Math.max(1, ...ends);
    for (const lane of shown) drawSteps(panel, lane, most, steps);
    if (shown.length) drawSums(panel, shown, steps);
    drawSweep(panel);
  },
};

function unitOf(panel: Panel): CostUnit {
  return panel.choice("unit") === "ms" ? "ms" : "GFLOPs";
}

function laneCosts(panel: Panel): LaneCosts[] {
  const { inspector } = panel;
  return inspector.store.started.flatMap(({ name }) => {
    const data = inspector.document<TimeData>(name, "time");
    return data?.forward_ms.shape[0] ? [{ name, costs: stepCosts(data, unitOf(panel)) }] : [];
  });
}

/** Why the times of lanes are not there; empty if all are. */
function lackOf({ inspector }: Panel): string {
  const lacks = inspector.store.started.map(({ name }) => {
    return { name, why: laneLack(inspector, name) };
  });
  return lackWords(lacks);
}

function laneLack(inspector: Inspector, name: LaneName): string {
  const found = inspector.given(name, "time");
  if (!found) return READING;
  if (isMissing(found)) return found.missing;
  return inspector.frames[name]?.steps === 0 ? (inspector.lackOf(name) ?? "") : "";
}

/** The reasons of the lanes in one text, which names the lanes unless all have the same one. */
export function lackWords(lacks: readonly { name: LaneName; why: string }[]): string {
  if (new Set(lacks.map(({ why }) => why)).size < 2) return lacks.at(0)?.why ?? "";
  const some = lacks.filter(({ why }) => why);
  return some.map(({ name, why }) => `Lane ${name.toUpperCase()}: ${why}`).join(" ");
}

/** The step of a lane next to a place on the axis of all steps. */
function laneStep(panel: Panel, lane: LaneName, x: number, steps: number): number {
  return stepAt(x, steps, panel.inspector.store.lanes[lane].before);
}

function pickStep(panel: Panel, lane: LaneName, x: number, steps: number, pin: boolean): void {
  panel.pick({ lane, step: laneStep(panel, lane, x, steps) }, pin);
}

function drawSteps(panel: Panel, { name, costs }: LaneCosts, most: number, steps: number): void {
  const unit = unitOf(panel);
  const own = costs.total.length;
  const { before } = panel.inspector.store.lanes[name];
  const what = unit === "ms" ? "time of each step" : "FLOPs of each step";
  panel.figure("time-" + name, [name]).show({
    about: { lane: name, quantity: unit },
    title: what,
    x: stepAxis(steps),
    y: { name: unit, from: 0, to: most * ROOM || 1 },
    series: costs.stacked.map((part) => ({
      ...part,
      kind: "bars",
      xs: placesOf(own, before),
      wide: 0.9,
    })),
    at: panel.cursor.lane === name ? panel.number(panel.cursor.step) : null,
    words: (x) => stepWords(panel, { name, costs }, stepAt(x, own, before)),
    pick: (x, _, pin) => pickStep(panel, name, x, own, pin),
    height: 220,
  });
}

function stepWords(panel: Panel, { name, costs }: LaneCosts, step: number): string {
  const lane = panel.inspector.store.lanes[name];
  const row = lane.rows.at(step);
  const parts = costs.stacked.map((part) => part.name + " " + number(part.ys[step], 3));
  const tokens = row
    ? `, ${plural(row.forwards, "forward")}, ${plural(row.places.length, "token")} committed`
    : "";
  const total = `${number(costs.total[step], 3)} ${unitOf(panel)} (${parts.join(", ")})`;
  const running = number(costs.running[step], 2);
  return `Lane ${name.toUpperCase()}, step ${lane.stepNumber(step)}: ${total}, ${running} so far${tokens}`;
}

function drawSums(panel: Panel, shown: readonly LaneCosts[], steps: number): void {
  const colours = inks(panel.root);
  const unit = unitOf(panel);
  const { lanes } = panel.inspector.store;
  const most = Math.max(...shown.map(({ costs }) => costs.running.at(-1) ?? 0));
  panel.bothFigure("time-sum").show({
    about: { lane: undefined, quantity: unitOf(panel) },
    title: "cumulative sum",
    x: stepAxis(steps),
    y: { name: unit, from: 0, to: most * ROOM || 1 },
    series: shown.map(({ name, costs }) =>
      laneSeries(name, costs.running, colours, lanes[name].before),
    ),
    at: panel.number(panel.cursor.step),
    words: (x) => {
      const parts = shown.map(({ name, costs }) => {
        const step = laneStep(panel, name, x, costs.running.length);
        const sum = number(costs.running[step], 2);
        return `Lane ${name.toUpperCase()} after step ${lanes[name].stepNumber(step)}: ${sum} ${unit}`;
      });
      return parts.join("; ");
    },
    pick: (x, _, pin) => pickStep(panel, panel.cursor.lane, x, panel.frame.steps, pin),
    height: 220,
  });
}
