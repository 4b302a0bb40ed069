import { cividis, type Rgb } from "../../base/colours.ts";
import { write } from "../../base/dom.ts";
import { plural, percent } from "../../base/format.ts";
import type { HeatSpec, ScaleLegend, Series } from "../../figures/spec.ts";
import { nameOnAxis, overLayers, percentEnd, placesOf } from "../axes.ts";
import type { CellMap } from "../cell_map.ts";
import { known, NO_DATA } from "../codes.ts";
import { firstCounted } from "../drift_counts.ts";
import { HEIGHT, layersBeside } from "../drift_maps.ts";
import {
  changedRows,
  expertSentence,
  layerWords,
  meanChanges,
  type ExpertFacts,
  type ExpertRows,
} from "../experts.ts";
import type { Panel } from "../panel.ts";
import { nearest } from "../probed_steps.ts";
import { ROWS_CONTROL, rowsWhere } from "../quantities.ts";
import type { Query } from "../slice.ts";
import { inPercent, recordedOf, shareAbove } from "../tally.ts";
import { viewOf } from "../view.ts";
import { SHARE_SCALE, shareColour } from "./counts.ts";

const CHANGED_COLOUR = "#0072b2";
const PROBED_COLOUR = "#d55e00";
const MAPS = ["experts-steps", "experts-layers", "experts-probed"];

/** How many tokens change experts between steps, by layer. */
export const experts = viewOf<ExpertFacts>({
  title: "Expert changes",
  level: "layers",
  source: { view: "experts" },
  without: "This run has no expert changes: its model has no experts.",
  about:
    "Which tokens change experts? In a layer with experts, a router chooses experts for every row. When a row is computed again, its experts are compared with those before. " +
    "A cache that reuses a feed-forward output keeps the experts chosen earlier, which the router might not choose now. " +
    "With Record and probe, the router's choice in an exact forward is compared with the experts behind each output in use.",
  controls: [
    { name: "least", label: "Changed experts, at least", value: "1", options: [["1", "1"]] },
    ROWS_CONTROL,
  ],
  draw(panel, facts) {
    const numbers = Array.from({ length: facts.active }, (_, i) => String(i + 1));
    panel.choices(
      "least",
      numbers.map((text) => [text, text]),
    );
    const least = Number(panel.choice("least"));
    const sum = panel.block("sum", "p", "ds-wide");
    const found = rowsOf(panel);
    panel.figure("experts").root.classList.add("ds-wide");
    if (found) {
      const words = { recorded: recordedOf(panel.frame), where: whereOf(panel) };
      write(sum, expertSentence(facts, found, least, words));
      drawShares(panel, found, least);
      drawCharts(panel, facts, found, least);
    }
    drawSteps(panel, facts);
    drawLayers(panel, facts);
    drawProbed(panel, facts);
  },
});

/** Rows by changed experts; null while the figures wait for them. */
function rowsOf(panel: Panel): ExpertRows | null {
  const from = firstCounted(panel.frame, null, panel.choice("rows") === "answer");
  const query: Query = { view: "experts", part: "counts", position_from: from || undefined };
  const figures = ["experts", "experts-by-layer"].map((name) => panel.figure(name));
  const found = panel.parts<{ counts: ExpertRows }>(figures, { counts: query });
  return found && found.counts;
}

function whereOf(panel: Panel): string {
  return rowsWhere(panel.choice("rows") === "answer");
}

function atLeast(least: number): string {
  return least > 1 ? `at least ${least} changed experts` : "a changed expert";
}

function drawShares(panel: Panel, found: ExpertRows, least: number): void {
  const { frame, cursor, spot } = panel;
  const table = changedRows(found.rows, least);
  panel.figure("experts").show({
    title: `Rows${whereOf(panel)} with ${atLeast(least)}: layer by step`,
    key: [least, panel.choice("rows"), cursor.lane, panel.inspector.key].join(),
    x: panel.stepCells(),
    y: { name: "layer", count: frame.layers },
    value: (step, layer) => shareAbove(table.at(step, layer)),
    colour: shareColour,
    legend: { ...SHARE_SCALE, name: "changed" },
    unit: "share of the rows computed again",
    blank: "no row computed again, or no experts",
    words: (step, layer) => {
      const { seen, above } = table.at(step, layer);
      const where = `Step ${panel.number(step)}, layer ${layer + 1}: `;
      if (!seen) return where + "no row with experts was computed again";
      const share = percent(above / seen);
      return `${where}${above} of ${plural(seen, "row")} (${share}) with ${atLeast(least)}`;
    },
    pick: (step, layer, pin) => panel.pick({ step, layer }, pin),
    at: { x: spot.step, y: spot.layer },
    height: Math.min(Math.max(60 + 22 * frame.layers, 180), 460),
  });
}

function drawCharts(panel: Panel, facts: ExpertFacts, found: ExpertRows, least: number): void {
  const changed = changedRows(found.rows, least).byLayer.map(shareAbove);
  const probed = changedRows(found.probed, least).byLayer.map(shareAbove);
  const means = meanChanges(found.rows);
  const stale = probed.filter((share): share is number => share !== null);
  const end = percentEnd(changed, stale);
  const xs = placesOf(panel.frame.layers);
  const series: Series[] = [
    {
      name: "computed again, with other experts",
      kind: "bars",
      colour: CHANGED_COLOUR,
      xs,
      ys: inPercent(changed),
    },
  ];
  if (stale.length)
    series.push({
      name: nameOnAxis("in use, the router would now choose others (probed)", stale, end),
      colour: PROBED_COLOUR,
      dash: [6, 3],
      xs,
      ys: inPercent(probed),
    });
  panel.figure("experts-by-layer").show({
    title: `Each layer, over all ${recordedOf(panel.frame)}steps: rows${whereOf(panel)} with ${atLeast(least)}`,
    y: { name: "% of rows", from: 0, to: end },
    series,
    ...overLayers(panel, (l) => {
      const found = { changed: changed[l], mean: means[l], probed: probed[l] };
      return layerWords(l, found, facts.active);
    }),
    height: 260,
  });
}

function colourOf(active: number): (changes: number) => Rgb {
  return (changes) => cividis(changes / Math.max(active, 1));
}

function scaleOf(active: number): ScaleLegend {
  return {
    kind: "scale",
    name: "changed experts",
    range: { from: 0, to: active, log: false },
    colour: cividis,
    ticks: [
      [0, "0"],
      [1, String(active)],
    ],
  };
}

/** What the maps of changed experts have in common. */
function mapOf(
  panel: Panel,
  { active }: ExpertFacts,
  map: CellMap,
): Pick<HeatSpec, "x" | "colour" | "legend" | "unit" | "height" | "cells" | "blocks"> {
  const colour = colourOf(active);
  const palette = Array.from({ length: NO_DATA }, (_, n) => colour(Math.min(n, active)));
  return {
    ...map.drawn(palette),
    x: panel.positions(),
    colour,
    legend: scaleOf(active),
    unit: "changed experts",
    height: HEIGHT,
  };
}

function changeWords(map: CellMap, row: number, x: number, active: number, none: string): string {
  const code = map.at(row, x);
  return map.words(row, x) + (code < NO_DATA ? `${code} of ${active} experts changed` : none);
}

const NOT_AGAIN = "not computed again in this step";

function drawSteps(panel: Panel, facts: ExpertFacts): void {
  const { frame, cursor, spot } = panel;
  const { layer } = spot;
  const query = (of: number): Query => ({ view: "experts", part: "map", layer: of });
  const map = panel.map({
    figure: MAPS[0],
    query: query(layer),
    rows: ["step", frame.steps],
    columns: ["position", frame.positions],
    height: HEIGHT,
    ahead: layersBeside(layer, frame.layers).map(query),
  });
  if (!map) return;
  panel.figure(MAPS[0]).show({
    ...mapOf(panel, facts, map),
    title: `Changed experts in layer ${layer + 1}: step by position`,
    key: `s${map.key}`,
    y: panel.stepCells(),
    value: (x, step) => known(map.at(step, x)),
    about: { layer },
    words: (x, step) =>
      `Position ${x + 1}, ${panel.text(x, step)}, step ${panel.number(step)}, layer ${layer + 1}: ${changeWords(map, step, x, facts.active, NOT_AGAIN)}`,
    pick: (x, step, pin) => panel.pick({ position: x, step }, pin),
    at: { x: cursor.position, y: spot.step },
  });
}

function drawLayers(panel: Panel, facts: ExpertFacts): void {
  const { frame, cursor, spot } = panel;
  const { step } = spot;
  const map = panel.map({
    figure: MAPS[1],
    query: { view: "experts", part: "map", step },
    rows: ["layer", frame.layers],
    columns: ["position", frame.positions],
  });
  if (!map) return;
  panel.figure(MAPS[1]).show({
    ...mapOf(panel, facts, map),
    title: `Changed experts in step ${panel.number(step)}: layer by position`,
    key: `l${map.key}`,
    y: { name: "layer", count: frame.layers },
    value: (x, layer) => known(map.at(layer, x)),
    words: (x, layer) =>
      `Position ${x + 1}, ${panel.text(x, step)}, layer ${layer + 1}: ${changeWords(map, layer, x, facts.active, NOT_AGAIN)}`,
    pick: (x, layer, pin) => panel.pick({ position: x, layer }, pin),
    at: { x: cursor.position, y: spot.layer },
  });
}

/** The outputs in use at the probed step nearest to the cursor. */
function drawProbed(panel: Panel, facts: ExpertFacts): void {
  const { frame, cursor, spot } = panel;
  const steps = Array.from(facts.probe_step.values);
  panel.showFigures(steps.length ? Object.keys(panel.figures) : withoutProbes(panel));
  if (!steps.length) return;
  const probe = nearest(steps, spot.step);
  const map = panel.map({
    figure: MAPS[2],
    query: { view: "experts", part: "probed", probe },
    rows: ["layer", frame.layers],
    columns: ["position", frame.positions],
  });
  panel.figure(MAPS[2]).root.hidden = false;
  if (!map) return;
  const step = steps[probe];
  panel.figure(MAPS[2]).show({
    ...mapOf(panel, facts, map),
    title: `Outputs whose experts the router would not choose now, probed step ${panel.number(step)}: layer by position`,
    key: `p${map.key}`,
    y: { name: "layer", count: frame.layers },
    value: (x, layer) => known(map.at(layer, x)),
    words: (x, layer) =>
      `Position ${x + 1}, ${panel.text(x, step)}, layer ${layer + 1}: ${changeWords(map, layer, x, facts.active, "took no part in the step")}`,
    pick: (x, layer, pin) => panel.pick({ position: x, layer, step }, pin),
    at: { x: cursor.position, y: spot.layer },
  });
}

function withoutProbes(panel: Panel): string[] {
  return Object.keys(panel.figures).filter((name) => name !== MAPS[2]);
}
