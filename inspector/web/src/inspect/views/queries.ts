import { cividis, type Rgb } from "../../base/colours.ts";
import { write } from "../../base/dom.ts";
import { number, percent, plural } from "../../base/format.ts";
import type { CellAxis, ScaleLegend, Series } from "../../figures/spec.ts";
import { at, type NdArray } from "../arrays.ts";
import { layerAt, placesOf } from "../axes.ts";
import { DRIFT, known } from "../codes.ts";
import type { CellMap } from "../cell_map.ts";
import { layersBeside } from "../drift_maps.ts";
import type { Panel } from "../panel.ts";
import { isDone, planOfLayer, type PlanBits } from "../plans.ts";
import {
  codeText,
  countedPlaces,
  layerLimit,
  mapLegend,
  QUERY_COLOURS,
  thresholdWords,
  type QueryData,
} from "../query_words.ts";
import type { Query } from "../slice.ts";
import { ROWS_CONTROL, SITE_OPTIONS } from "../quantities.ts";
import { SITES } from "../sites.ts";
import { recordedOf } from "../tally.ts";
import { isWhole, viewOf, type Frame } from "../view.ts";

/** Rows of a layer by drift [4, 2, bins], first recomputed, then reused ones. */
interface Histogram {
  counts: NdArray;
}

/** Share of rows reused [L, 4]. */
interface Reuse {
  reuse: NdArray;
}

/** The view of a layer and a site. */
interface Scene {
  panel: Panel;
  data: QueryData;
  frame: Frame;
  site: number;
  /** The name of the site. */
  name: string;
  layer: number;
  /** The first position that is shown. */
  from: number;
  /** The layer's threshold; null if it has none. */
  limit: number | null;
  axis: CellAxis;
  at: { x: number | null; y: number };
  height: number;
  key: string;
}

const MOST_AGE = 32;
const AGE_LEGEND: ScaleLegend = {
  kind: "scale",
  name: "steps since recomputed",
  range: { from: 0, to: MOST_AGE, log: false },
  colour: cividis,
  ticks: [
    [0, "0"],
    [0.25, "8"],
    [0.5, "16"],
    [0.75, "24"],
    [1, "≥ 32"],
  ],
};

/** The drift of the queries of one layer, and the rows that it reuses. */
export const queries = viewOf<QueryData>({
  title: "Query drift",
  level: "layers",
  source: { view: "queries", part: "facts" },
  about:
    "The drift of the query of the first head between two steps, for each row, in the layer of the cursor. DARE reuses a row if this drift is at most the layer's threshold τ (DARE, figure 3). " +
    "Underlined rows were reused. The histogram and the profile show how many rows were reused in each layer (DARE, figure 5), and the last figure shows the age of the reused values.",
  controls: [
    {
      name: "site",
      label: "Reused",
      value: "auto",
      options: [["auto", "what the method reuses"], ...SITE_OPTIONS],
    },
    { ...ROWS_CONTROL, label: "Positions" },
  ],
  draw(panel, data) {
    const scene = sceneOf(panel, data);
    write(panel.block("said", "p", "ds-wide"), thresholdWords(data, scene.layer, scene.limit));
    drawDrifts(scene);
    drawHistogram(scene);
    drawProfile(scene);
    drawAges(scene);
  },
});

function sceneOf(panel: Panel, data: QueryData): Scene {
  const { frame, cursor, inspector } = panel;
  const chosen = panel.choice("site");
  const site = chosen === "auto" ? data.site : Number(chosen);
  const { step, layer } = panel.spot;
  const from = panel.choice("rows") === "answer" ? frame.prompt : 0;
  const shown = cursor.position !== null && cursor.position >= from;
  return {
    panel,
    data,
    frame,
    site,
    name: SITE_OPTIONS[site][1],
    layer,
    from,
    limit: layerLimit(data, layer),
    axis: from ? panel.answers() : panel.positions(),
    at: { x: shown ? cursor.position - from : null, y: step },
    height: Math.min(Math.max(frame.steps * 5 + 44, 240), 680),
    key: [layer, site, from, cursor.lane, inspector.key].join(),
  };
}

function placeWords({ panel, layer }: Scene, position: number, step: number): string {
  const text = panel.text(position, step);
  return `Position ${position + 1}, ${text}, step ${panel.number(step)}, layer ${layer + 1}: `;
}

/** What the map of the drifts shows: drift codes, and the plan of the layer's site [steps, 1, …]. */
interface Drifts {
  map: CellMap;
  plan: PlanBits;
}

/** What a step did with a row at the plan's site. */
export function useWords(
  plan: PlanBits,
  { sight }: Pick<Frame, "sight">,
  step: number,
  position: number,
): "recomputed" | "reused" | "not in sight" {
  if (isDone(plan, step, 0, position)) return "recomputed";
  return position < sight.values[step] ? "reused" : "not in sight";
}

function driftWords(scene: Scene, { map, plan }: Drifts, position: number, step: number): string {
  const { limit, name, frame } = scene;
  const code = codeText(map.at(step, position), isWhole(frame, "q0"));
  const drift = map.words(step, position) + code;
  const against = limit === null ? "" : ` (threshold ${limit.toPrecision(2)})`;
  const done = useWords(plan, frame, step, position);
  const place = placeWords(scene, position, step);
  return `${place}query drift ${drift}${against}; ${name} ${done}`;
}

function driftsOf(scene: Scene): Drifts | null {
  const { panel, frame, site, layer, from } = scene;
  const figure = panel.figure("queries-drift");
  const query = (layer: number): Query => {
    return { view: "drift", part: "map", quantity: "q0", layer };
  };
  const map = panel.map({
    figure: "queries-drift",
    query: query(layer),
    rows: ["step", frame.steps],
    columns: ["position", frame.positions - from],
    first: from,
    height: scene.height,
    ahead: layersBeside(layer, frame.layers).map(query),
  });
  const found = panel.parts<{ plan: PlanBits }>(figure, { plan: planOfLayer(layer, site) });
  return map && found && { map, plan: found.plan };
}

function drawDrifts(scene: Scene): void {
  const { panel, frame, site, layer, from, limit } = scene;
  const figure = panel.figure("queries-drift");
  figure.root.classList.add("ds-wide");
  const found = driftsOf(scene);
  if (!found) return;
  const { map, plan } = found;
  figure.show({
    title: `Layer ${layer + 1}: drift of the query of the first head, step by position`,
    key: ["q", scene.key, map.key].join(),
    x: scene.axis,
    y: panel.stepCells(),
    value: (x, y) => known(map.at(y, from + x)),
    ...map.drawn(QUERY_COLOURS, from),
    about: { layer, quantity: "q0" },
    colour: (code) => QUERY_COLOURS[code],
    under: (x, y) => useWords(plan, frame, y, from + x) === "reused",
    ...mapLegend(site, layer, limit, isWhole(panel.frame, "q0")),
    unit: "1 - cosine",
    plain: (code) => DRIFT[code],
    words: (x, y) => driftWords(scene, found, from + x, y),
    pick: (x, y, pin) => panel.pick({ position: from + x, step: y }, pin),
    at: scene.at,
    height: scene.height,
  });
}

function driftTick(drift: number): string {
  const power = Math.round(Math.log10(drift));
  if (power === -5) return "10⁻⁵";
  return power === -4 ? "10⁻⁴" : String(+drift.toPrecision(1));
}

function drawHistogram({ panel, data, site, layer, limit, name }: Scene): void {
  const figure = panel.figure("queries-histogram");
  const query = { view: "queries", part: "histogram", layer };
  const found = panel.parts<{ rows: Histogram }>(figure, { rows: query });
  if (!found) return;
  const table = found.rows.counts;
  const counts = (reused: number): number[] =>
    Array.from({ length: table.shape[2] }, (_, i) => at(table, site, reused, i));
  const [fresh, kept] = [counts(0), counts(1)];
  const all = [...fresh, ...kept].reduce((sum, n) => sum + n, 0);
  const share = (n: number): number => (all ? (100 * n) / all : 0);
  const edges = Array.from(data.edges.values);
  const [xs, ends, base] = [edges.slice(0, -1), edges.slice(1), kept.map(share)];
  const bars = { kind: "bars", xs, ends, least: 0 } as const;
  figure.show({
    about: { layer, quantity: SITES[site] },
    title:
      `Layer ${layer + 1}: rows by drift of their query, over ${countedPlaces(data, recordedOf(panel.frame))}` +
      (all ? "" : " (none was compared)"),
    x: { name: "1 − cosine", from: edges[0], to: 2.05, log: true, tick: driftTick },
    y: { name: "% of rows", from: 0, to: 100 },
    series: [
      { ...bars, name: name + " reused", colour: "#0072b2", ys: base },
      { ...bars, name: name + " recomputed", colour: "#e69f00", ys: fresh.map(share), base },
    ],
    rules: limit === null ? [] : [{ x: limit, dash: [5, 3], text: "τ" }],
    words: (x) => {
      const i = Math.max(
        xs.findLastIndex((low) => low <= x),
        0,
      );
      const high = edges[i + 1].toPrecision(2);
      const span = i ? `${edges[i].toPrecision(2)} to ${high}` : "below " + high;
      const both = percent(share(kept[i] + fresh[i]) / 100, 1);
      const rows = `${plural(kept[i], "row")} reused, ${number(fresh[i])} recomputed`;
      return `Drift ${span}: ${rows}, together ${both} of ${number(all)}`;
    },
    height: 280,
  });
}

function drawProfile({ panel, data, frame, site, layer, name }: Scene): void {
  const figure = panel.figure("queries-profile");
  const query = { view: "queries", part: "reuse" };
  const found = panel.parts<{ rows: Reuse }>(figure, { rows: query });
  if (!found) return;
  const xs = placesOf(frame.layers);
  const ys = xs.map((x) => 100 * at(found.rows.reuse, x - 1, site));
  const aimed = data.aimed ? data.aimed.map((share) => 100 * share) : null;
  const of = data.dare
    ? "the rows whose query was compared"
    : "the rows that a run without a cache computes after the first step";
  const series: Series[] = [{ name: "reused", kind: "bars", colour: "#0072b2", xs, ys, wide: 0.7 }];
  if (aimed)
    series.push(
      { name: "target", colour: "#d55e00", dash: [5, 3], xs, ys: aimed },
      { name: "", table: null, kind: "points", colour: "#d55e00", size: 4, xs, ys: aimed },
    );
  figure.show({
    about: { quantity: SITES[site] },
    title: `Reused by layer, ${name}: share of ${of}`,
    x: { name: "layer", from: 0.4, to: frame.layers + 0.6, whole: true },
    y: { name: "% reused", from: 0, to: 100 },
    series,
    at: layer + 1,
    words: (x) => {
      const l = layerAt(x, frame.layers);
      const target = data.aimed ? `, target ${percent(data.aimed[l], 1)}` : "";
      const share = Number.isNaN(ys[l]) ? "no such row" : percent(ys[l] / 100, 1) + " reused";
      return `Layer ${l + 1}: ${share}${target}`;
    },
    pick: (x, _, pin) => panel.pick({ layer: layerAt(x, frame.layers) }, pin),
    height: 280,
  });
}

function drawAges(scene: Scene): void {
  const { panel, frame, layer, site, from, name } = scene;
  const figure = panel.figure("queries-stale");
  figure.root.classList.add("ds-wide");
  const map = panel.map({
    figure: "queries-stale",
    query: { view: "queries", part: "age", layer, quantity: SITES[site] },
    rows: ["step", frame.steps],
    columns: ["position", frame.positions - from],
    first: from,
    bytes: 2,
    height: scene.height,
  });
  if (!map) return;
  const age = (x: number, y: number): number | null => {
    const steps = map.at(y, from + x);
    return steps < NEVER ? steps : null;
  };
  figure.show({
    title: `Layer ${layer + 1}: steps since the row's ${name} was recomputed`,
    key: ["age", scene.key, map.key].join(),
    x: scene.axis,
    y: panel.stepCells(),
    value: age,
    ...map.drawn(
      Array.from({ length: frame.steps }, (_, steps) => ageColour(steps)),
      from,
    ),
    about: { layer, quantity: SITES[site] },
    colour: ageColour,
    legend: AGE_LEGEND,
    blank: "no data: never computed",
    unit: "steps since recomputed",
    words: (x, y) =>
      `${placeWords(scene, from + x, y)}${name} ${map.words(y, from + x)}${ageWords(age(x, y))}`,
    pick: (x, y, pin) => panel.pick({ position: from + x, step: y }, pin),
    at: scene.at,
    height: scene.height,
  });
}

/** The age of a row that was never computed. */
const NEVER = 65535;

function ageColour(steps: number): Rgb {
  return cividis(steps / MOST_AGE);
}

function ageWords(age: number | null): string {
  if (age === null) return "not computed so far";
  return age ? plural(age, "step") + " old" : "recomputed in this step";
}
