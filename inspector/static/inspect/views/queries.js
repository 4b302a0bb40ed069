const QUERY_DECADES = [-5, 0];
const QUERY_SCALE = {
  kind: "scale", name: "1 − cosine", colour: cividis,
  ticks: [[0, "≤ 10⁻⁵"], [0.2, "10⁻⁴"], [0.4, "10⁻³"], [0.6, "0.01"], [0.8, "0.1"], [1, "1"]],
};
const STALE_MOST = 32;
const STALE_SCALE = {
  kind: "scale", name: "steps since recomputed", colour: cividis,
  ticks: [[0, "0"], [0.25, "8"], [0.5, "16"], [0.75, "24"], [1, "≥ 32"]],
};
const NEVER = 65535;

INSPECT_VIEWS.queries = {
  title: "Query drift",
  level: "layers",
  source: "queries",
  about:
    "The drift of the query of the first head between two steps, for each row, in the layer of the cursor. DARE reuses a row while this drift is below the layer's threshold τ (DARE, figure 3). " +
    "Underlined rows were reused. The histogram and the profile show how many rows were reused in each layer (DARE, figure 5), and the last figure shows the age of the reused values.",
  controls: [
    { name: "site", label: "Reused", value: "auto", options: [["auto", "what the method reuses"], ...SITE_OPTIONS] },
    { name: "rows", label: "Positions", value: "all", options: [["all", "all"], ["answer", "in the answer"]] },
  ],
  draw(panel, data) {
    const scene = queryScene(panel, data);
    const said = panel.block("said", "p", "ds-wide");
    const text = querySentence(scene);
    if (said.textContent !== text) said.textContent = text;
    queryHeat(panel, scene);
    queryHistogram(panel, scene);
    queryProfile(panel, scene);
    queryStale(panel, scene);
  },
};

function queryScene(panel, data) {
  const { frame, cursor, values, inspector } = panel;
  const site = values.site === "auto" ? data.site : +values.site;
  const { step, layer } = panel.spot;
  const limit = data.threshold ? data.threshold[layer] : null;
  const from = values.rows === "answer" ? frame.prompt : 0;
  return {
    data, frame, site, step, layer, from,
    limit: limit !== null && limit >= 0 ? limit : null,
    name: SITE_OPTIONS[site][1],
    axis: from ? panel.answers() : panel.positions(),
    at: { x: cursor.position === null || cursor.position < from ? null : cursor.position - from, y: step },
    height: Math.min(Math.max(frame.steps * 5 + 44, 240), 680),
    key: [layer, site, from, cursor.lane, inspector.key].join(),
  };
}

function queryPlace(value) {
  const [low, high] = QUERY_DECADES;
  return Math.min(Math.max((Math.log10(Math.max(value, 1e-12)) - low) / (high - low), 0), 1);
}

function queryText(code) {
  if (code === NO_DATA) return "not compared";
  return code ? DRIFT[code].toPrecision(2) : "below 0.000015";
}

function querySentence({ data, layer, limit }) {
  if (!data.dare) return "The cache of this run does not compare queries, so there is no threshold. The map shows the drift of the queries that were computed.";
  if (!data.threshold) return "This run reuses nothing (quantile 0), so there is no threshold.";
  const shown = limit === null ? "nothing is reused" : "τ = " + limit.toPrecision(2) + ", set so that " + number(100 * data.aimed[layer], 1) + " % of the rows of a calibration run stay below it";
  const anchor = data.anchor ? " The method compared each query with the query at the row's last refresh; the drift shown here is from one step to the next." : "";
  return "Layer " + (layer + 1) + ": " + shown + "." + anchor;
}

function queryWords(panel, { data, frame, site, layer, limit, name }, position, step) {
  const code = at(data.q0, step, layer, position);
  const reused = !bit(frame.plan, position, step, layer, site);
  const against = limit === null ? "" : " (threshold " + limit.toPrecision(2) + ")";
  return "Position " + (position + 1) + ", " + panel.text(position, step) + ", step " + (step + 1) + ", layer " + (layer + 1) + ": query drift " + queryText(code) + against + "; " + name + (reused ? " reused" : " recomputed");
}

function queryHeat(panel, scene) {
  const { data, frame, site, layer, from, limit } = scene;
  const code = (x, y) => {
    const found = at(data.q0, y, layer, from + x);
    return found === NO_DATA ? null : found;
  };
  const items = limit === null ? [] : [[[213, 94, 0], "τ of layer " + (layer + 1) + ": " + limit.toPrecision(2), "τ"]];
  const figure = panel.figure("queries-drift");
  figure.root.classList.add("ds-wide");
  figure.show({
    title: "Layer " + (layer + 1) + ": drift of the query of the first head, step by position",
    key: "q" + scene.key,
    x: scene.axis,
    y: { name: "step", count: frame.steps },
    value: code,
    colour: (c) => cividis(queryPlace(DRIFT[c])),
    under: (x, y) => !bit(frame.plan, from + x, y, layer, site),
    underName: scene.name + " reused",
    legend: { ...QUERY_SCALE, marks: limit === null ? [] : [queryPlace(limit)], items },
    blank: "no data: query not computed, or computed for the first time",
    unit: "1 - cosine",
    plain: (c) => DRIFT[c],
    words: (x, y) => queryWords(panel, scene, from + x, y),
    pick: (x, y, pin) => panel.pick({ position: from + x, step: y }, pin),
    leave: () => panel.pick(null, false),
    at: scene.at,
    height: scene.height,
  });
}

function queryHistogram(panel, { data, site, layer, limit, name }) {
  const bins = data.counts.shape[3];
  const counts = (reused) => Array.from({ length: bins }, (_, i) => at(data.counts, layer, site, reused, i));
  const [fresh, kept] = [counts(0), counts(1)];
  const all = [...fresh, ...kept].reduce((sum, n) => sum + n, 0);
  const share = (list) => list.map((n) => (all ? (100 * n) / all : 0));
  const edges = Array.from(data.edges.values);
  const [xs, ends] = [edges.slice(0, -1), edges.slice(1)];
  const lines = [["reused", "#0072b2", share(kept)], ["recomputed", "#e69f00", share(fresh), share(kept)]];
  panel.figure("queries-histogram").show({
    title: "Layer " + (layer + 1) + ": rows by drift of their query, over all steps" + (all ? "" : " (none was compared)"),
    x: { name: "1 − cosine", from: edges[0], to: 2.05, log: true, tick: (v) => ({ "-5": "10⁻⁵", "-4": "10⁻⁴" })[Math.round(Math.log10(v))] || String(+v.toPrecision(1)) },
    y: { name: "% of rows", from: 0, to: 100 },
    series: lines.map(([text, colour, ys, base]) => ({ name: name + " " + text, kind: "bars", colour, xs, ends, ys, base })),
    rules: limit === null ? [] : [{ x: limit, dash: [5, 3], text: "τ" }],
    words: (x) => {
      const i = Math.max(xs.findLastIndex((low) => low <= x), 0);
      const span = i ? edges[i].toPrecision(2) + " to " + edges[i + 1].toPrecision(2) : "below " + edges[1].toPrecision(2);
      return "Drift " + span + ": " + plural(kept[i], "row") + " reused, " + number(fresh[i]) + " recomputed, together " + number(all ? (100 * (kept[i] + fresh[i])) / all : 0, 1) + " % of " + number(all);
    },
    height: 280,
  });
}

function queryProfile(panel, { data, frame, site, layer, name }) {
  const xs = Array.from({ length: frame.layers }, (_, l) => l + 1);
  const ys = xs.map((_, l) => 100 * at(data.reuse, l, site));
  const aimed = data.aimed ? data.aimed.map((share) => 100 * share) : null;
  const of = data.dare ? "the rows whose query was compared" : "all rows after the first step";
  const series = [{ name: "reused", kind: "bars", colour: "#0072b2", xs, ys, wide: 0.7 }];
  if (aimed) series.push({ name: "target", colour: "#d55e00", dash: [5, 3], xs, ys: aimed }, { name: "", kind: "points", colour: "#d55e00", size: 4, xs, ys: aimed });
  const place = (x) => Math.min(Math.max(Math.round(x) - 1, 0), frame.layers - 1);
  panel.figure("queries-profile").show({
    title: "Reused by layer, " + name + ": share of " + of,
    x: { name: "layer", from: 0.4, to: frame.layers + 0.6, whole: true },
    y: { name: "% reused", from: 0, to: 100 },
    series,
    at: layer + 1,
    words: (x) => "Layer " + (place(x) + 1) + ": " + number(ys[place(x)], 1) + " % reused" + (aimed ? ", " + "target " + number(aimed[place(x)], 1) + " %" : ""),
    pick: (x, _, pin) => panel.pick({ layer: place(x) }, pin),
    leave: () => panel.pick(null, false),
    height: 280,
  });
}

function queryAges(data, frame, layer, site) {
  const key = layer + "," + site;
  if (data.agesKey === key) return data.ages;
  const { steps, positions } = frame;
  const [, layers, sites, bytes] = frame.plan.shape;
  const ages = new Uint16Array(steps * positions).fill(NEVER);
  for (let s = 0; s < steps; s++) {
    const row = ((s * layers + layer) * sites + site) * bytes;
    for (let x = 0; x < positions; x++) {
      const before = s ? ages[(s - 1) * positions + x] : NEVER;
      const fresh = (frame.plan.values[row + (x >> 3)] >> (7 - (x & 7))) & 1;
      ages[s * positions + x] = fresh ? 0 : before === NEVER ? NEVER : before + 1;
    }
  }
  Object.assign(data, { agesKey: key, ages });
  return ages;
}

function queryStale(panel, scene) {
  const { data, frame, layer, site, from, name } = scene;
  const ages = queryAges(data, frame, layer, site);
  const age = (x, y) => ages[y * frame.positions + from + x];
  const figure = panel.figure("queries-stale");
  figure.root.classList.add("ds-wide");
  figure.show({
    title: "Layer " + (layer + 1) + ": steps since the row's " + name + " was recomputed",
    key: "age" + scene.key,
    x: scene.axis,
    y: { name: "step", count: frame.steps },
    value: (x, y) => (age(x, y) === NEVER ? null : age(x, y)),
    colour: (steps) => cividis(steps / STALE_MOST),
    legend: STALE_SCALE,
    blank: "no data: never computed",
    unit: "steps since recomputed",
    words: (x, y) => {
      const steps = age(x, y);
      const age_ = steps === NEVER ? "not computed so far" : steps ? plural(steps, "step") + " old" : "recomputed in this step";
      return "Position " + (from + x + 1) + ", " + panel.text(from + x, y) + ", step " + (y + 1) + ", layer " + (layer + 1) + ": " + name + " " + age_;
    },
    pick: (x, y, pin) => panel.pick({ position: from + x, step: y }, pin),
    leave: () => panel.pick(null, false),
    at: scene.at,
    height: scene.height,
  });
}
