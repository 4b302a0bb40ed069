const GROUP_LOOKS = [
  ["#0072b2", []], ["#e69f00", [7, 3]], ["#009e73", [2, 3]],
  ["#cc79a7", [9, 3, 2, 3]], ["#d55e00", [4, 2]], ["#56b4e9", [1, 2]],
];
const COSINE_SCALE = {
  kind: "scale", name: "cosine", colour: cividis,
  ticks: [[0, "0"], [0.25, "0.25"], [0.5, "0.5"], [0.75, "0.75"], [1, "1"]],
};

INSPECT_VIEWS.similarity = {
  title: "Similarity",
  level: "layers",
  source: "similarity",
  about:
    "The cosine between K, or V, of any two steps, averaged over the tokens of a group, in each layer (Fast-dLLM, figure 3; DARE, figure 4). " +
    "A dark square on the diagonal is a range of steps in which the values barely change, so that a cache can be reused. On the linear scale of the papers it is bright. " +
    "The averages are over a sample of each group's tokens, vectors wider than 64 are randomly projected, and a reused row counts with its cached value.",
  controls: [
    { name: "kind", label: "Of", value: "v", options: [["k", "K"], ["v", "V"]] },
    { name: "group", label: "Group", value: "0", options: [["0", "prompt"]] },
    { name: "scale", label: "Scale", value: "log", options: [["log", "1 − cosine, log"], ["linear", "cosine, linear"]] },
  ],
  draw(panel, data) {
    const groups = similarityGroups(panel.frame, data);
    panel.choices("group", groups.map((text, g) => [String(g), text]));
    const scene = new SimilarityScene(panel, data, groups);
    similarityMatrix(panel, scene);
    similarityDistance(panel, scene);
    similarityLayers(panel, scene);
  },
};

function similarityGroups(frame, data) {
  return Array.from({ length: data.groups.shape[0] }, (_, g) => {
    const low = at(data.groups, g, 0);
    if (low < frame.prompt) return "prompt";
    const place = Math.floor((low - frame.prompt) / frame.block) + 1;
    const last = Math.ceil((frame.positions - frame.prompt) / frame.block);
    return "block " + place + (place === last && last > 1 ? " (last)" : "");
  });
}

class SimilarityScene {
  constructor(panel, data, groups) {
    const { cursor, frame, values } = panel;
    Object.assign(this, { data, groups, linear: values.scale === "linear" });
    this.name = values.kind.toUpperCase();
    this.kind = values.kind === "k" ? 0 : 1;
    this.group = +values.group;
    this.layer = Math.min(cursor.layer, data.codes.shape[2] - 1);
    this.steps = data.steps.values;
    this.step = Math.min(cursor.step, frame.steps - 1);
    this.now = 0;
    while (this.now + 1 < this.steps.length && this.steps[this.now + 1] <= this.step) this.now++;
  }

  code(a, b, layer = this.layer, group = this.group) {
    const [high, low] = a < b ? [b, a] : [a, b];
    const [, kinds, layers, groups] = this.data.codes.shape;
    const pair = (high * (high + 1)) / 2 + low;
    return this.data.codes.values[((pair * kinds + this.kind) * layers + layer) * groups + group];
  }

  drift(a, b, layer, group) {
    return DRIFT[this.code(a, b, layer, group)];
  }

  get look() {
    return this.linear
      ? { legend: COSINE_SCALE, unit: "cosine", colour: (far) => cividis(1 - far), plain: (far) => 1 - far }
      : { legend: DRIFT_SCALE, unit: "1 - cosine", colour: (far) => cividis(decade(far)), plain: (far) => far };
  }

  text(far) {
    if (Number.isNaN(far)) return "unknown";
    const small = far < 1e-4 ? "below 0.0001" : far.toPrecision(2);
    return "cosine " + (1 - far).toFixed(4) + " (1 − cosine " + small + ")";
  }

  sentence(a, b, layer, group) {
    return "Layer " + (layer + 1) + ", " + this.groups[group] + ": " + this.name + " of step " + (this.steps[a] + 1) + " and of step " + (this.steps[b] + 1) + ", " + this.text(this.drift(a, b, layer, group));
  }

  before() {
    const [, kinds, layers, groups] = this.data.codes.shape;
    const key = "before" + this.kind;
    if (this.data[key]) return this.data[key];
    const sum = new Float64Array(layers * groups);
    for (let t = 1; t < this.steps.length; t++) {
      const from = (((t * (t + 1)) / 2 + t - 1) * kinds + this.kind) * layers * groups;
      for (let i = 0; i < sum.length; i++) sum[i] += DRIFT[this.data.codes.values[from + i]];
    }
    this.data[key] = sum.map((far) => far / (this.steps.length - 1));
    return this.data[key];
  }

  get key() {
    return [this.kind, this.linear].join();
  }
}

function similarityMatrix(panel, scene) {
  const count = scene.steps.length;
  const tick = (i) => String(scene.steps[i] + 1);
  const other = panel.pair && panel.pair.y === scene.now && panel.pair.x < count ? panel.pair.x : scene.now;
  const figure = panel.figure("similarity-steps");
  figure.root.classList.add("ds-tall");
  figure.show({
    ...scene.look,
    title: scene.name + " of layer " + (scene.layer + 1) + ", " + scene.groups[scene.group] + ": each step compared with each step",
    key: [scene.key, scene.layer, scene.group, panel.cursor.lane, panel.inspector.key].join(),
    x: { name: "step", count, tick },
    y: { name: "step", count, tick },
    value: (x, y) => {
      const far = scene.drift(y, x);
      return Number.isNaN(far) ? null : far;
    },
    words: (x, y) => scene.sentence(y, x, scene.layer, scene.group),
    pick: (x, y, pin) => similarityPick(panel, scene, x, y, pin),
    leave: () => panel.pick(null, false),
    at: { x: other, y: scene.now },
    square: 520,
  });
}

function similarityPick(panel, scene, x, y, pin) {
  panel.pair = { x, y };
  panel.pick({ step: scene.steps[y] }, pin);
  if (pin) panel.inspector.draw();
}

function similarityAxis(scene) {
  return scene.linear
    ? { name: "cosine", from: 0, to: 1 }
    : { name: "1 − cosine", from: 1e-4, to: 2, log: true, tick: (v) => (v > 1.5e-4 ? String(+v.toPrecision(1)) : "≤ .0001") };
}

function similarityDistance(panel, scene) {
  const { steps, now } = scene;
  const back = Array.from({ length: now }, (_, i) => now - 1 - i);
  const near = (distance) => back.reduce((best, u) => (Math.abs(steps[now] - steps[u] - distance) < Math.abs(steps[now] - steps[best] - distance) ? u : best), back[0]);
  const series = scene.groups.map((name, g) => {
    const [colour, dash] = GROUP_LOOKS[g % GROUP_LOOKS.length];
    const fars = back.map((u) => scene.drift(now, u, scene.layer, g));
    return {
      name, colour, dash, width: g === scene.group ? 3.5 : 1.5,
      xs: back.map((u) => steps[now] - steps[u]), ys: fars.map((far) => (scene.linear ? 1 - far : far)),
    };
  });
  panel.figure("similarity-distance").show({
    title: now ? scene.name + " of layer " + (scene.layer + 1) + ": step " + (steps[now] + 1) + " compared with the steps before it" : "There is no step before step 1; move the cursor to a later step",
    x: { name: "steps before", from: 0, to: Math.max(steps[steps.length - 1], 1), whole: true },
    y: similarityAxis(scene),
    series,
    at: panel.pair && panel.pair.y === now && panel.pair.x < now ? steps[now] - steps[panel.pair.x] : null,
    words: (x) => (now ? similarityWords(scene, near(x)) : ""),
    pick: (x, _, pin) => now && similarityPick(panel, scene, near(x), now, pin),
    leave: () => panel.pick(null, false),
    height: 300,
  });
}

function similarityWords(scene, u) {
  const { steps, now } = scene;
  const parts = scene.groups.map((name, g) => name + " " + scene.text(scene.drift(now, u, scene.layer, g)));
  return "Step " + (steps[now] + 1) + " compared with step " + (steps[u] + 1) + ", " + plural(steps[now] - steps[u], "step") + " before: " + parts.join("; ");
}

function similarityLayers(panel, scene) {
  const means = scene.before();
  const groups = scene.groups.length;
  const mean = (g, layer) => means[layer * groups + g];
  panel.figure("similarity-layers").show({
    ...scene.look,
    title: scene.name + " compared with the previous recorded step, mean over the run: layer by group; a click chooses both",
    key: [scene.key, panel.cursor.lane, panel.inspector.key].join(),
    x: { name: "group", count: groups, tick: (g) => scene.groups[g] },
    y: { name: "layer", count: scene.data.codes.shape[2] },
    value: (g, layer) => (Number.isNaN(mean(g, layer)) ? null : mean(g, layer)),
    words: (g, layer) => "Layer " + (layer + 1) + ", " + scene.groups[g] + ": " + scene.name + " compared with the previous recorded step, mean of " + plural(scene.steps.length - 1, "pair") + ": " + scene.text(mean(g, layer)),
    pick: (g, layer, pin) => {
      if (pin) panel.set("group", String(g));
      panel.pick({ layer }, pin);
    },
    leave: () => panel.pick(null, false),
    at: { x: scene.group, y: scene.layer },
    height: 300,
  });
}
