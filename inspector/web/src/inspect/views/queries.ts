import { cividis, type Rgb } from "../../base/colours.ts";
import { write } from "../../base/dom.ts";
import { number, plural } from "../../base/format.ts";
import type { CellAxis, HeatSpec, ScaleLegend, Series } from "../../figures/spec.ts";
import { at, bit, type NdArray } from "../arrays.ts";
import { layerAt, placesOf } from "../axes.ts";
import { DRIFT, NO_DATA } from "../codes.ts";
import type { Panel } from "../panel.ts";
import { planeCodes } from "../planes.ts";
import { rowAges } from "../row_ages.ts";
import { SITE_OPTIONS } from "../quantities.ts";
import { SITES } from "../sites.ts";
import { viewOf, type Frame } from "../view.ts";

/** The document of the server: S steps, L layers, T positions. */
export interface QueryData {
  /** [S, L, T]: drift codes of the first head's query from step to step. */
  q0: NdArray;
  /**
   * DARE's threshold by layer, and its target share of reuse: -1 and 0 if the layer reuses
   * nothing. Null for other methods.
   */
  threshold: readonly number[] | null;
  aimed: readonly number[] | null;
  /** Whether the cache is DARE. */
  dare: boolean;
  /** The site that the method reuses. */
  site: number;
  /** Whether DARE compares a query with that of the row's last refresh. */
  anchor: boolean;
  /** The borders of the bins. */
  edges: NdArray<Float32Array>;
  /** [L, 4, 2, bins]: rows by drift, first recomputed, then reused ones. */
  counts: NdArray;
  /** [L, 4]: share of rows reused. */
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

const LOWEST = -5; // the colours go from 10⁻⁵ to 1
const DRIFT_LEGEND: ScaleLegend = {
  kind: "scale",
  name: "1 − cosine",
  colour: cividis,
  range: { from: 1e-5, to: 1, log: true },
  ticks: [
    [0, "≤ 10⁻⁵"],
    [0.2, "10⁻⁴"],
    [0.4, "10⁻³"],
    [0.6, "0.01"],
    [0.8, "0.1"],
    [1, "1"],
  ],
};
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
  source: "queries",
  about:
    "The drift of the query of the first head between two steps, for each row, in the layer of the cursor. DARE reuses a row while this drift is below the layer's threshold τ (DARE, figure 3). " +
    "Underlined rows were reused. The histogram and the profile show how many rows were reused in each layer (DARE, figure 5), and the last figure shows the age of the reused values.",
  controls: [
    {
      name: "site",
      label: "Reused",
      value: "auto",
      options: [["auto", "what the method reuses"], ...SITE_OPTIONS],
    },
    {
      name: "rows",
      label: "Positions",
      value: "all",
      options: [
        ["all", "all"],
        ["answer", "in the answer"],
      ],
    },
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

/** The threshold of a layer; null if the layer reuses nothing or there is none. */
export function layerLimit(
  { threshold }: Pick<QueryData, "threshold">,
  layer: number,
): number | null {
  const limit = threshold ? threshold[layer] : -1;
  return limit >= 0 ? limit : null;
}

/** The place of a drift between 10⁻⁵ (0) and 1 (1) on a logarithmic scale. */
function scalePlace(drift: number): number {
  const log = (Math.log10(Math.max(drift, 1e-12)) - LOWEST) / -LOWEST;
  return Math.min(Math.max(log, 0), 1);
}

const QUERY_COLOURS = Array.from(DRIFT.subarray(0, NO_DATA), (drift) => cividis(scalePlace(drift)));

/** The legend of the map: what is reused in it, and the threshold of its layer (null: none). */
export function mapLegend(
  site: number,
  layer: number,
  limit: number | null,
): Required<Pick<HeatSpec, "legend" | "blank" | "underName">> {
  const legend: ScaleLegend = { ...DRIFT_LEGEND, marks: [], items: [] };
  if (limit !== null) {
    legend.marks = [scalePlace(limit)];
    legend.items = [[[213, 94, 0], `τ of layer ${layer + 1}: ${limit.toPrecision(2)}`, "τ"]];
  }
  return {
    legend,
    blank: "no data: query not computed, or computed for the first time",
    underName: SITE_OPTIONS[site][1] + " reused",
  };
}

function codeText(code: number): string {
  if (code === NO_DATA) return "not compared";
  return code ? DRIFT[code].toPrecision(2) : "below 0.000015";
}

/** What the threshold of a layer is, and where it is from. */
export function thresholdWords(data: QueryData, layer: number, limit: number | null): string {
  if (!data.dare)
    return "The cache of this run does not compare queries, so there is no threshold. The map shows the drift of the queries that were computed.";
  if (!data.threshold) return "This run reuses nothing (quantile 0), so there is no threshold.";
  let shown = "nothing is reused";
  if (limit !== null) {
    const aimed = number(100 * (data.aimed?.[layer] ?? NaN), 1);
    shown = `τ = ${limit.toPrecision(2)}, set so that ${aimed} % of the rows of a calibration run stay below it`;
  }
  const anchor = data.anchor
    ? " The method compared each query with the query at the row's last refresh; the drift shown here is from one step to the next."
    : "";
  return `Layer ${layer + 1}: ${shown}.${anchor}`;
}

function placeWords({ panel, layer }: Scene, position: number, step: number): string {
  const text = panel.text(position, step);
  return `Position ${position + 1}, ${text}, step ${panel.number(step)}, layer ${layer + 1}: `;
}

function driftWords(scene: Scene, position: number, step: number): string {
  const { data, frame, site, layer, limit, name } = scene;
  const code = at(data.q0, step, layer, position);
  const reused = !bit(frame.plan, position, step, layer, site);
  const against = limit === null ? "" : ` (threshold ${limit.toPrecision(2)})`;
  const done = reused ? "reused" : "recomputed";
  const place = placeWords(scene, position, step);
  return `${place}query drift ${codeText(code)}${against}; ${name} ${done}`;
}

function drawDrifts(scene: Scene): void {
  const { panel, data, frame, site, layer, from, limit } = scene;
  const figure = panel.figure("queries-drift");
  figure.root.classList.add("ds-wide");
  figure.show({
    title: `Layer ${layer + 1}: drift of the query of the first head, step by position`,
    key: "q" + scene.key,
    x: scene.axis,
    y: panel.stepCells(),
    value: (x, y) => {
      const code = at(data.q0, y, layer, from + x);
      return code === NO_DATA ? null : code;
    },
    cells: () => ({
      codes: planeCodes(data.q0, { rows: 0, columns: 2, at: [0, layer, from] }),
      palette: QUERY_COLOURS,
    }),
    about: { layer, quantity: "q0" },
    colour: (code) => QUERY_COLOURS[code],
    under: (x, y) => !bit(frame.plan, from + x, y, layer, site),
    ...mapLegend(site, layer, limit),
    unit: "1 - cosine",
    plain: (code) => DRIFT[code],
    words: (x, y) => driftWords(scene, from + x, y),
    pick: (x, y, pin) => panel.pick({ position: from + x, step: y }, pin),
    leave: () => panel.pick(null, false),
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
  const bins = data.counts.shape[3];
  const counts = (reused: number): number[] =>
    Array.from({ length: bins }, (_, i) => at(data.counts, layer, site, reused, i));
  const [fresh, kept] = [counts(0), counts(1)];
  const all = [...fresh, ...kept].reduce((sum, n) => sum + n, 0);
  const share = (n: number): number => (all ? (100 * n) / all : 0);
  const edges = Array.from(data.edges.values);
  const [xs, ends, base] = [edges.slice(0, -1), edges.slice(1), kept.map(share)];
  const bars = { kind: "bars", xs, ends } as const;
  panel.figure("queries-histogram").show({
    about: { layer, quantity: SITES[site] },
    title:
      `Layer ${layer + 1}: rows by drift of their query, over all steps` +
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
      const both = number(share(kept[i] + fresh[i]), 1);
      const rows = `${plural(kept[i], "row")} reused, ${number(fresh[i])} recomputed`;
      return `Drift ${span}: ${rows}, together ${both} % of ${number(all)}`;
    },
    height: 280,
  });
}

function drawProfile({ panel, data, frame, site, layer, name }: Scene): void {
  const xs = placesOf(frame.layers);
  const ys = xs.map((x) => 100 * at(data.reuse, x - 1, site));
  const aimed = data.aimed ? data.aimed.map((share) => 100 * share) : null;
  const of = data.dare ? "the rows whose query was compared" : "all rows after the first step";
  const series: Series[] = [{ name: "reused", kind: "bars", colour: "#0072b2", xs, ys, wide: 0.7 }];
  if (aimed)
    series.push(
      { name: "target", colour: "#d55e00", dash: [5, 3], xs, ys: aimed },
      { name: "", kind: "points", colour: "#d55e00", size: 4, xs, ys: aimed },
    );
  panel.figure("queries-profile").show({
    about: { quantity: SITES[site] },
    title: `Reused by layer, ${name}: share of ${of}`,
    x: { name: "layer", from: 0.4, to: frame.layers + 0.6, whole: true },
    y: { name: "% reused", from: 0, to: 100 },
    series,
    at: layer + 1,
    words: (x) => {
      const l = layerAt(x, frame.layers);
      const target = aimed ? `, target ${number(aimed[l], 1)} %` : "";
      return `Layer ${l + 1}: ${number(ys[l], 1)} % reused${target}`;
    },
    pick: (x, _, pin) => panel.pick({ layer: layerAt(x, frame.layers) }, pin),
    leave: () => panel.pick(null, false),
    height: 280,
  });
}

function drawAges(scene: Scene): void {
  const { panel, frame, layer, site, from, name } = scene;
  const ages = rowAges(frame, layer, site);
  const age = (x: number, y: number): number | null => ages.at(y, from + x);
  const figure = panel.figure("queries-stale");
  figure.root.classList.add("ds-wide");
  figure.show({
    title: `Layer ${layer + 1}: steps since the row's ${name} was recomputed`,
    key: "age" + scene.key,
    x: scene.axis,
    y: panel.stepCells(),
    value: age,
    cells: () => ({
      codes: ages.part(from),
      palette: Array.from({ length: frame.steps }, (_, steps) => ageColour(steps)),
    }),
    about: { layer, quantity: SITES[site] },
    colour: ageColour,
    legend: AGE_LEGEND,
    blank: "no data: never computed",
    unit: "steps since recomputed",
    words: (x, y) => `${placeWords(scene, from + x, y)}${name} ${ageWords(age(x, y))}`,
    pick: (x, y, pin) => panel.pick({ position: from + x, step: y }, pin),
    leave: () => panel.pick(null, false),
    at: scene.at,
    height: scene.height,
  });
}

function ageColour(steps: number): Rgb {
  return cividis(steps / MOST_AGE);
}

function ageWords(age: number | null): string {
  if (age === null) return "not computed so far";
  return age ? plural(age, "step") + " old" : "recomputed in this step";
}
