const SCATTER_TICKS = [".0001", ".001", ".01", ".1", "1"];
const ROWS_SCALE = {
  kind: "scale", name: "rows", colour: cividis,
  ticks: [[0, "1"], [0.2, "10"], [0.4, "100"], [0.6, "10³"], [0.8, "10⁴"], [1, "≥ 10⁵"]],
};
const SCATTER_LOOKS = [["#0072b2", []], ["#e69f00", [7, 3]], ["#009e73", [2, 3]]];
const SCATTER_FIGURES = 3;

INSPECT_VIEWS.scatter = {
  title: "V against outputs",
  level: "layers",
  source: "scatter",
  about:
    "Rows by the drift of two quantities; a row counts if all quantities were evaluated. dLLM-Cache selects rows by the drift of V, because it should predict the drift of the attention and feed-forward outputs (its figure 2). " +
    "DARE selects rows by the drift of the query of the first head (its figure 2). The closer the rows are to a rising line, the better the prediction. The correlations are over all rows.",
  controls: [
    { name: "of", label: "Predictor", value: "v", options: [["v", "V"], ["q0", "query of the first head"]] },
    { name: "layers", label: "Layers", value: "all", options: [["one", "layer of the cursor"], ["all", "all"]] },
  ],
  draw(panel, data) {
    const chosen = data.pairs.map((pair, i) => [pair, i]).filter(([pair]) => pair[0] === panel.values.of);
    const layers = data.counts.shape[1];
    const layer = panel.values.layers === "all" ? layers : Math.min(panel.cursor.layer, layers - 1);
    scatterSentence(panel, data, chosen, layer);
    for (let k = 0; k < SCATTER_FIGURES; k++) {
      const figure = panel.figure("scatter-" + (k + 1));
      figure.root.hidden = k >= chosen.length;
      if (k < chosen.length) scatterMap(panel, data, chosen[k], layer, figure);
    }
    scatterLayers(panel, data, chosen);
  },
};

function scatterCounts(data, pair, layer) {
  const [, layers, size] = data.counts.shape;
  const cells = size * size;
  const from = (l) => (pair * layers + l) * cells;
  if (layer < layers) return data.counts.values.subarray(from(layer), from(layer) + cells);
  data.everywhere = data.everywhere || [];
  if (!data.everywhere[pair]) {
    const sum = new Int32Array(cells);
    for (let l = 0; l < layers; l++) for (let i = 0; i < cells; i++) sum[i] += data.counts.values[from(l) + i];
    data.everywhere[pair] = sum;
  }
  return data.everywhere[pair];
}

function scatterWhere(data, layer) {
  return layer < data.counts.shape[1] ? "layer " + (layer + 1) : "all layers";
}

function coefficient(value) {
  return Number.isFinite(value) ? value.toFixed(3) : "–";
}

function scatterWords(data, pair, layer) {
  const [r, logs, rho] = [0, 1, 2].map((i) => coefficient(at(data.stats, pair, layer, i)));
  return "Spearman " + rho + ", Pearson " + r + ", Pearson of the logarithms " + logs;
}

function scatterSentence(panel, data, chosen, layer) {
  const rows = at(data.rows, chosen[0][1], layer);
  const most = data.most * (layer < data.counts.shape[1] ? 1 : data.counts.shape[1]);
  const parts = [plural(rows, "row") + " of " + scatterWhere(data, layer) + " counted."];
  for (const [[a, b], i] of chosen) parts.push(scatterName(a) + " against " + COUNT_NAMES[b] + ": " + scatterWords(data, i, layer) + ".");
  const said = panel.block("sum", "p", "ds-wide");
  if (said.textContent !== parts.join(" ")) said.textContent = parts.join(" ");
  const note = panel.block("missing", "p", "ds-note ds-wide");
  note.hidden = rows >= most;
  if (!note.hidden) note.textContent = percent(1 - rows / most) + " of the rows are missing: the cache reused them, so their drift is unknown. To see all rows, record plain decoding, a lane without a cache.";
}

function scatterName(name) {
  return name === "q0" ? "Query of the first head" : COUNT_NAMES[name];
}

function scatterAxis(name, size, up) {
  const edge = (i) => 10 ** (-4 + (4 * i) / size);
  const ticks = SCATTER_TICKS.map((text, k) => (up ? [size - Math.max(k * (size / 4), 1), k ? text : "≤ " + text] : [k * (size / 4), text]));
  return { name: "1 − cos, " + name, count: size, ticks, up, edge, tick: (i) => edge(up ? size - 1 - i : i).toPrecision(3) };
}

function scatterSpan(axis, i) {
  const low = i ? axis.edge(i).toPrecision(2) : "0";
  return low + " to " + (i + 1 < axis.count ? axis.edge(i + 1).toPrecision(2) : "2");
}

function scatterMap(panel, data, [[a, b], pair], layer, figure) {
  const size = data.counts.shape[2];
  const counts = scatterCounts(data, pair, layer);
  const [x, y] = [scatterAxis(scatterName(a), size, false), scatterAxis(COUNT_NAMES[b], size, true)];
  const count = (i, j) => counts[i * size + size - 1 - j];
  figure.show({
    title: scatterName(a) + " against " + COUNT_NAMES[b] + ", " + scatterWhere(data, layer) + ": Spearman " + coefficient(at(data.stats, pair, layer, 2)),
    key: [pair, layer, panel.cursor.lane, panel.inspector.key].join(),
    x,
    y,
    value: (i, j) => count(i, j) || null,
    colour: (rows) => cividis(Math.log10(rows) / 5),
    legend: ROWS_SCALE,
    unit: "rows",
    blank: "no row",
    words: (i, j) => plural(count(i, j), "row") + " with a drift of " + scatterSpan(x, i) + " in " + COUNT_NAMES[a] + " and " + scatterSpan(y, size - 1 - j) + " in " + COUNT_NAMES[b],
    square: 460,
  });
}

function scatterLayers(panel, data, chosen) {
  const layers = data.counts.shape[1];
  const xs = Array.from({ length: layers }, (_, l) => l + 1);
  const near = (x) => Math.min(Math.max(Math.round(x) - 1, 0), layers - 1);
  panel.figure("scatter-layers").show({
    title: "Spearman's rank correlation by layer",
    x: { name: "layer", from: 0.5, to: layers + 0.5, whole: true },
    y: { name: "Spearman", from: -1, to: 1 },
    series: chosen.map(([[, b], pair], k) => ({
      name: "with " + COUNT_NAMES[b], colour: SCATTER_LOOKS[k][0], dash: SCATTER_LOOKS[k][1], xs,
      ys: xs.map((_, l) => at(data.stats, pair, l, 2)),
    })),
    rules: [{ y: 0 }],
    at: Math.min(panel.cursor.layer, layers - 1) + 1,
    words: (x) => {
      const l = near(x);
      const parts = chosen.map(([[, b], pair]) => "with " + COUNT_NAMES[b] + " " + scatterWords(data, pair, l));
      return "Layer " + (l + 1) + ", " + plural(at(data.rows, chosen[0][1], l), "row") + ": " + parts.join("; ");
    },
    pick: (x, _, pin) => panel.pick({ layer: near(x) }, pin),
    leave: () => panel.pick(null, false),
    height: 300,
  });
}
