const COUNT_NAMES = { k: "K", v: "V", attn: "attention output", ffn: "feed-forward output", q0: "query of the first head" };
const SHARE_SCALE = {
  kind: "scale", name: "drifted", colour: cividis,
  ticks: [[0, "≤ 0.1 %"], [1 / 3, "1 %"], [2 / 3, "10 %"], [1, "100 %"]],
};

INSPECT_VIEWS.counts = {
  title: "Drift counts",
  level: "layers",
  source: "drift",
  also: [["why", "steps"]],
  about:
    "The share of evaluated rows whose drift since their previous evaluation is above a threshold, by layer and step (SPA-Cache, figure 2). " +
    "In plain decoding every row is evaluated, and a budget per layer should follow this profile. In a cached run only the recomputed rows can be counted. " +
    "The charts also show the method's budget, if it has one, and the share of rows that was recomputed.",
  controls: [
    { name: "quantity", label: "Quantity", value: "v", options: Object.entries(COUNT_NAMES) },
    { name: "tau", label: "Threshold", min: -4, max: 0, step: 0.05, value: -1.3, words: (v) => "1 − cos > " + countLimit(v) },
    { name: "rows", label: "Rows", value: "all", options: [["all", "all"], ["answer", "in the answer"]] },
  ],
  draw(panel, data) {
    const scene = new CountScene(panel, data, panel.inspector.given(panel.cursor.lane, "why"));
    const said = panel.block("sum", "p", "ds-wide");
    const text = scene.sentence();
    if (said.textContent !== text) said.textContent = text;
    countMap(panel, scene);
    countLayers(panel, scene);
    countSteps(panel, scene);
  },
};

function countLimit(exponent) {
  return +(10 ** exponent).toPrecision(2);
}

class CountScene {
  constructor(panel, data, rules) {
    const { frame, cursor, values } = panel;
    const known = rules && !rules.missing ? rules : null;
    Object.assign(this, { panel, data, frame, rules: known });
    this.quantity = data.quantities.indexOf(values.quantity);
    this.name = COUNT_NAMES[values.quantity];
    this.limit = countLimit(values.tau);
    this.code = 0;
    while (this.code < NO_DATA - 1 && DRIFT[this.code + 1] <= this.limit) this.code++;
    this.answer = values.rows === "answer";
    this.from = this.answer ? Math.max(frame.prompt - (known?.shift || 0), 0) : 0;
    this.table = countTable(data, this.quantity, this.from);
    this.layer = Math.min(cursor.layer, frame.layers - 1);
    this.step = Math.min(cursor.step, frame.steps - 1);
    this.key = [this.quantity, this.code, this.from, cursor.lane, panel.inspector.key].join();
  }

  get rows() {
    return this.frame.positions - this.from;
  }

  sums(cells) {
    const out = { seen: 0, above: 0 };
    for (const [step, layer] of cells) {
      out.seen += this.table.seen(step, layer);
      out.above += this.table.above(step, layer, this.code);
    }
    return out;
  }

  ofLayer(layer) {
    return this.sums(Array.from({ length: this.frame.steps }, (_, step) => [step, layer]));
  }

  ofStep(step) {
    return this.sums(Array.from({ length: this.frame.layers }, (_, layer) => [step, layer]));
  }

  share({ seen, above }) {
    return seen ? above / seen : null;
  }

  worst(step, layer) {
    const { values, shape } = this.data.drift;
    const row = ((step * shape[1] + layer) * shape[2] + this.quantity) * shape[3];
    const found = [];
    for (let x = this.from; x < shape[3]; x++) if (values[row + x] !== NO_DATA) found.push([values[row + x], x]);
    return found.sort((a, b) => b[0] - a[0] || a[1] - b[1]).slice(0, 5);
  }

  get refreshes() {
    const due = this.rules?.facts.budget && this.rules.due;
    return due ? Array.from({ length: this.frame.steps }, (_, s) => Boolean(at(due, s, 0) || (at(due, s, 1) && at(due, s, 2)))) : [];
  }

  get between() {
    const { refreshes } = this;
    const steps = Array.from({ length: this.frame.steps }, (_, s) => s).slice(1);
    const calm = steps.filter((s) => !refreshes[s]);
    return refreshes.length && calm.length ? { steps: calm, name: "recomputed between refreshes" } : { steps, name: "recomputed after step 1" };
  }

  recomputed() {
    const key = [this.quantity, this.from, Boolean(this.rules)].join();
    if (this.data.recomputedKey === key) return this.data.recomputed;
    const { frame } = this;
    const done = Array.from({ length: frame.steps }, (_, s) => Array.from({ length: frame.layers }, (_, l) => this.done(s, l) / this.rows));
    const { steps, name } = this.between;
    const mean = (values) => values.reduce((a, b) => a + b, 0) / Math.max(values.length, 1);
    this.data.recomputedKey = key;
    this.data.recomputed = {
      name,
      layers: Array.from({ length: frame.layers }, (_, l) => mean(steps.map((s) => done[s][l]))),
      steps: done.map(mean),
    };
    return this.data.recomputed;
  }

  done(step, layer) {
    if (this.quantity > 3) return this.table.seen(step, layer);
    return rowsDone(this.frame.plan, this.from, this.frame.positions, step, layer, this.quantity);
  }

  budget() {
    const given = this.rules?.facts.budget;
    if (!Array.isArray(given) || given.length !== this.frame.layers) return null;
    const sparse = this.rules.budget_of === "all";
    const whose = sparse ? "all rows" : "the rows in the answer";
    const fits = [2, 3].includes(this.quantity) && this.answer !== sparse;
    return {
      shares: given,
      name: "budget (share of " + whose + ", between refreshes)",
      hint: fits ? "" : " The budget applies to the attention and feed-forward outputs of " + whose + ": choose one of these quantities and these rows to compare.",
    };
  }

  sentence() {
    const all = { seen: 0, above: 0 };
    for (let layer = 0; layer < this.frame.layers; layer++) {
      const { seen, above } = this.ofLayer(layer);
      all.seen += seen;
      all.above += above;
    }
    if (!all.seen) return "No row was evaluated twice.";
    return number(all.above) + " of " + number(all.seen) + " evaluated rows (" + percent(all.above / all.seen) + ") have a drift of " + this.name + " above " + this.limit + ", over all layers and steps." + (this.budget()?.hint || "");
  }
}

function countMap(panel, scene) {
  const { frame, table } = scene;
  const cell = (step, layer) => scene.share({ seen: table.seen(step, layer), above: table.above(step, layer, scene.code) });
  const figure = panel.figure("counts");
  figure.root.classList.add("ds-wide");
  figure.show({
    title: "Rows with a drift of " + scene.name + " above " + scene.limit + ": layer by step",
    key: scene.key,
    x: { name: "step", count: frame.steps },
    y: { name: "layer", count: frame.layers },
    value: cell,
    colour: (share) => cividis(1 + Math.log10(Math.max(share, 1e-3)) / 3),
    legend: SHARE_SCALE,
    unit: "share of the evaluated rows",
    blank: "no row evaluated",
    words: (step, layer) => countWords(panel, scene, step, layer),
    pick: (step, layer, pin) => panel.pick({ step, layer }, pin),
    leave: () => panel.pick(null, false),
    at: { x: scene.step, y: scene.layer },
    height: Math.min(Math.max(60 + 22 * frame.layers, 180), 460),
  });
}

function countWords(panel, scene, step, layer) {
  const seen = scene.table.seen(step, layer);
  const where = "Step " + (step + 1) + ", layer " + (layer + 1) + ": ";
  if (!seen) return where + "no row with a previous value was evaluated";
  const above = scene.table.above(step, layer, scene.code);
  const worst = scene.worst(step, layer).map(([code, x]) => "position " + (x + 1) + " " + panel.text(x, step) + " " + driftText(code));
  return where + above + " of " + plural(seen, "row") + " (" + percent(above / seen) + ") above " + scene.limit + "; largest: " + worst.join(", ");
}

function countLayers(panel, scene) {
  const { frame } = scene;
  const xs = Array.from({ length: frame.layers }, (_, l) => l + 1);
  const drifted = xs.map((_, l) => scene.ofLayer(l));
  const done = scene.recomputed();
  const budget = scene.budget();
  const full = (share) => (share === null ? null : 100 * share);
  const near = (x) => Math.min(Math.max(Math.round(x) - 1, 0), frame.layers - 1);
  panel.figure("counts-layers").show({
    title: "Each layer, over all steps: drifted, budgeted and recomputed rows",
    x: { name: "layer", from: 0.5, to: frame.layers + 0.5, whole: true },
    y: { name: "% of rows", from: 0, to: 100 },
    series: [
      { name: "drifted, of the evaluated rows", kind: "bars", colour: "#0072b2", xs, ys: drifted.map((sums) => full(scene.share(sums))) },
      { name: done.name, colour: "#009e73", xs, ys: done.layers.map(full) },
      ...(budget ? [{ name: budget.name, colour: "#d55e00", dash: [6, 3], xs, ys: budget.shares.map(full) }] : []),
    ],
    at: scene.layer + 1,
    words: (x) => {
      const l = near(x);
      const plan = budget ? ", budget " + percent(budget.shares[l]) : "";
      return "Layer " + (l + 1) + ": " + number(drifted[l].above) + " of " + number(drifted[l].seen) + " rows drifted (" + percent(scene.share(drifted[l])) + "), " + done.name + " " + percent(done.layers[l]) + plan;
    },
    pick: (x, _, pin) => panel.pick({ layer: near(x) }, pin),
    leave: () => panel.pick(null, false),
    height: 260,
  });
}

function countSteps(panel, scene) {
  const { frame } = scene;
  const xs = Array.from({ length: frame.steps }, (_, s) => s + 1);
  const drifted = xs.map((_, s) => scene.ofStep(s));
  const done = scene.recomputed();
  panel.figure("counts-steps").show({
    title: "Each step, over all layers: drifted and recomputed rows",
    x: stepAxis(frame.steps),
    y: { name: "% of rows", from: 0, to: 100 },
    series: [
      { name: "drifted, of the evaluated rows", kind: "bars", wide: 0.9, colour: "#0072b2", xs, ys: drifted.map((sums) => (sums.seen ? 100 * scene.share(sums) : null)) },
      { name: "recomputed", colour: "#009e73", kind: "step", xs, ys: done.steps.map((share) => 100 * share) },
    ],
    at: scene.step + 1,
    words: (x) => {
      const s = stepAt(x, frame.steps);
      return "Step " + (s + 1) + ": " + number(drifted[s].above) + " of " + number(drifted[s].seen) + " rows drifted (" + percent(scene.share(drifted[s])) + "), recomputed " + percent(done.steps[s]);
    },
    pick: (x, _, pin) => panel.pick({ step: stepAt(x, frame.steps) }, pin),
    leave: () => panel.pick(null, false),
    height: 260,
  });
}
