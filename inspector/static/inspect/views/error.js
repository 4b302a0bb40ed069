INSPECT_VIEWS.error = {
  title: "Error against exact",
  level: "probe",
  source: "error",
  about:
    "At the probed steps the network also ran without any reuse on the same canvas. The map shows 1 − cosine between the value that the run used and this exact value, for every row in the forward. Underlined rows were reused. " +
    "The other figures show how much the predictions differ, and how well the rows to recompute were chosen. Recall@k: k of the rows that could be reused (with a cached value, and no refresh of their whole region due) were recomputed; recall is the share of these k rows that are among the k rows with the largest error of the cached value. " +
    "With DARE, the quantity that bounds its error is compared with the true error.",
  controls: [
    { name: "site", label: "Error of", value: "2", options: SITE_OPTIONS },
  ],
  draw(panel, data) {
    const scene = errorScene(panel, data);
    errorSteps(panel, scene);
    errorHeat(panel, scene);
    errorMeans(panel, scene);
    errorRecall(panel, scene);
    errorPredictions(panel, scene);
    errorBound(panel, scene);
  },
};

function errorScene(panel, data) {
  const { step, layer } = panel.spot;
  const steps = Array.from(data.step.values);
  const far = (i) => Math.abs(steps[i] - step);
  const probe = steps.reduce((best, _, i) => (far(i) < far(best) ? i : best), 0);
  const site = +panel.values.site;
  return { data, steps, probe, site, layer, frame: panel.frame, name: SITE_OPTIONS[site][1], shown: "Step " + (steps[probe] + 1) };
}

function errorBlock(panel, name, text, style = "ds-wide") {
  const node = panel.block(name, "p", style);
  if (node.textContent !== text) node.textContent = text;
}

function errorSteps(panel, { steps, probe, data }) {
  const box = panel.block("steps", "div", "ds-steps ds-wide");
  const key = panel.cursor.lane + panel.inspector.key;
  if (box.dataset.key !== key) {
    box.dataset.key = key;
    box.setAttribute("role", "group");
    box.setAttribute("aria-label", "Probed step");
    box.replaceChildren(make("span", "", "Probed steps:"), ...steps.map((step) => errorKey(panel, step)));
  }
  [...box.querySelectorAll("button")].forEach((node, i) => node.setAttribute("aria-pressed", i === probe));
  const flipped = Array.from(data.flips.values).reduce((sum, n) => sum + n, 0);
  const all = data.tv.values.length;
  const worst = Math.max(0, ...data.tv.values);
  errorBlock(panel, "sum", "Over the " + plural(steps.length, "probed step") + ", " + flipped + " of " + plural(all, "prediction") + " had another most likely token than the exact network; the largest total variation was " + errorTv(worst) + ". The figures show the probed step nearest to the cursor.");
}

function errorKey(panel, step) {
  const key = make("button", "ds-pick", String(step + 1));
  key.type = "button";
  key.dataset.probe = step;
  key.setAttribute("aria-label", "Step " + (step + 1));
  key.addEventListener("click", () => panel.inspector.cursor.move({ step }));
  return key;
}

function errorHeat(panel, { data, frame, steps, probe, site, layer, name, shown }) {
  const figure = panel.figure("error-rows");
  figure.root.classList.add("ds-wide");
  figure.show({
    title: shown + ": error of the " + name + ", layer by position",
    key: ["rows", probe, site, panel.cursor.lane, panel.inspector.key].join(),
    x: panel.positions(),
    y: { name: "layer", count: frame.layers },
    value: (x, y) => {
      const code = at(data.error, probe, y, site, x);
      return code === NO_DATA ? null : code;
    },
    colour: driftColour,
    under: (x, y) => !bit(frame.plan, x, steps[probe], y, site),
    underName: "reused",
    legend: DRIFT_SCALE,
    blank: "no data: not in the forward of this step",
    unit: "1 - cosine",
    plain: (c) => DRIFT[c],
    words: (x, y) => {
      const done = bit(frame.plan, x, steps[probe], y, site) ? "recomputed" : "reused";
      return "Position " + (x + 1) + ", " + panel.text(x, steps[probe]) + ", layer " + (y + 1) + ", step " + (steps[probe] + 1) + ": error of the " + name + " " + errorText(at(data.error, probe, y, site, x), done);
    },
    pick: (x, y, pin) => panel.pick({ position: x, layer: y }, pin),
    leave: () => panel.pick(null, false),
    at: { x: panel.cursor.position, y: layer },
    height: 300,
  });
}

function errorText(code, done) {
  return code === NO_DATA ? "none, the row was not in the forward" : driftText(code) + " (" + done + ")";
}

function errorMeans(panel, { data, frame, steps, probe, site, layer, name }) {
  const mean = (x, y) => at(data.mean, x, y, site);
  panel.figure("error-means").show({
    title: "Mean error of the " + name + " over the rows in the forward: layer by probed step",
    key: ["means", site, panel.cursor.lane, panel.inspector.key].join(),
    x: { name: "probed step", count: steps.length, tick: (i) => String(steps[i] + 1) },
    y: { name: "layer", count: frame.layers },
    value: (x, y) => (Number.isNaN(mean(x, y)) ? null : mean(x, y)),
    colour: (value) => cividis(decade(value)),
    legend: { ...DRIFT_SCALE, name: "mean 1 − cosine" },
    unit: "mean 1 - cosine",
    words: (x, y) => "Step " + (steps[x] + 1) + ", layer " + (y + 1) + ": mean error of the " + name + " " + (Number.isNaN(mean(x, y)) ? "none, no row was in the forward" : mean(x, y).toPrecision(2)),
    pick: (x, y, pin) => panel.pick({ step: steps[x], layer: y }, pin),
    leave: () => panel.pick(null, false),
    at: { x: probe, y: layer },
    height: 280,
  });
}

function errorRecall(panel, { data, frame, steps, probe, site, layer, name, shown }) {
  const xs = Array.from({ length: frame.layers }, (_, l) => l + 1);
  const of = (array, e, l) => at(array, e, l, site);
  const here = xs.map((_, l) => of(data.recall, probe, l));
  const blind = xs.map((_, l) => of(data.chance, probe, l));
  const mean = xs.map((_, l) => errorMean(steps.map((_, e) => of(data.recall, e, l))));
  const none = !here.some((y) => !Number.isNaN(y));
  const place = (x) => Math.min(Math.max(Math.round(x) - 1, 0), frame.layers - 1);
  panel.figure("error-recall").show({
    title: shown + ": recall@k of the recomputed rows, " + name + (none ? " (no data: all or none of the reusable rows were recomputed)" : ""),
    x: { name: "layer", from: 0.5, to: frame.layers + 0.5, whole: true },
    y: { name: "recall@k", from: 0, to: 1 },
    series: [
      { name: "this step", colour: "#0072b2", xs, ys: here },
      { name: "", kind: "points", colour: "#0072b2", size: 4, xs, ys: here },
      { name: "mean of the probed steps", colour: "#e69f00", dash: [6, 3], xs, ys: mean },
      { name: "a random choice of k rows", colour: inspectInks(panel.root).ink, dash: [2, 3], xs, ys: blind },
    ],
    at: layer + 1,
    words: (x) => "Layer " + (place(x) + 1) + ": recall " + errorShare(here[place(x)]) + " in this step, " + errorShare(mean[place(x)]) + " on average, " + errorShare(blind[place(x)]) + " for a random choice",
    pick: (x, _, pin) => panel.pick({ layer: place(x) }, pin),
    leave: () => panel.pick(null, false),
    height: 280,
  });
}

function errorMean(values) {
  const known = values.filter((value) => !Number.isNaN(value));
  return known.length ? known.reduce((sum, value) => sum + value, 0) / known.length : NaN;
}

function errorTv(value) {
  return value >= 0.001 || value === 0 ? String(+value.toFixed(3)) : "below 0.001";
}

function errorShare(value) {
  return Number.isNaN(value) ? "no data" : value.toFixed(2);
}

function errorList({ data, frame, probe }) {
  const out = [];
  data.row.values.forEach((row, i) => {
    if (row !== probe) return;
    const [mine, exact] = [at(data.top, i, 0), at(data.top, i, 1)];
    const piece = (id) => quoted(data.pieces[id]) + (data.pieces[id] === undefined ? " (id " + id + ")" : "");
    out.push({ place: data.position.values[i] - frame.prompt, tv: data.tv.values[i], flip: mine !== exact, mine: piece(mine), exact: piece(exact) });
  });
  return out;
}

function errorPredictions(panel, scene) {
  const { frame, data, probe, shown } = scene;
  const found = errorList(scene);
  const answers = frame.positions - frame.prompt;
  const differs = inspectInks(panel.root).differs;
  const part = (list) => ({ xs: list.map(({ place }) => place + 1), ys: list.map(({ tv }) => tv) });
  const near = (x) => found.reduce((best, one) => (!best || Math.abs(one.place + 1 - x) < Math.abs(best.place + 1 - x) ? one : best), null);
  const flips = found.filter(({ flip }) => flip);
  panel.figure("error-tv").show({
    title: shown + ": total variation between the run's prediction and the exact one, by answer token",
    x: { name: "answer token", from: 0.5, to: answers + 0.5, whole: true },
    y: { name: "total variation", from: 0, to: 1 },
    series: [
      { name: "same most likely token", kind: "points", colour: "#0072b2", size: 3, ...part(found.filter(({ flip }) => !flip)) },
      { name: "", kind: "bars", colour: "#0072b2", wide: 0.6, ...part(found) },
      { name: "different most likely token", kind: "points", colour: differs, size: 5, ...part(flips) },
    ],
    at: panel.cursor.position === null || panel.cursor.position < frame.prompt ? null : panel.cursor.position - frame.prompt + 1,
    words: (x) => (near(x) ? errorPrediction(near(x)) : "Nothing was predicted in this step"),
    pick: (x, _, pin) => near(x) && panel.pick({ position: frame.prompt + near(x).place }, pin),
    leave: () => panel.pick(null, false),
    height: 280,
  });
  const mean = data.mean_tv.values[probe];
  const head = shown + ": " + plural(found.length, "prediction") + ", mean total variation " + (Number.isNaN(mean) ? "–" : errorTv(mean)) + ". ";
  const named = flips.slice(0, 8).map(errorPrediction).join("; ");
  errorBlock(panel, "flips", head + (flips.length ? plural(flips.length, "most likely token") + " would differ: " + named + (flips.length > 8 ? "; …" : "") + "." : "All most likely tokens are those of the exact network."), "");
}

function errorPrediction({ place, tv, flip, mine, exact }) {
  return "answer token " + (place + 1) + ": " + (flip ? "most likely in the run " + mine + ", in the exact network " + exact : "most likely " + mine + " in both") + " (total variation " + errorTv(tv) + ")";
}

function errorBound(panel, { data, frame, probe, layer, shown }) {
  const figure = panel.figure("error-bound");
  figure.root.hidden = !data.proxy;
  errorBlock(panel, "bound", data.proxy
    ? "DARE bounds a layer's error, up to constants, by the summed drift of the queries of reused rows since they were last recomputed. Drifts are recorded in classes, the first from 0 to 0.000015, so the exact sum is between the two dashed lines."
    : "DARE's bound is not shown: it needs the drift of the queries of reused rows, which this run's method does not compute.", "");
  if (!data.proxy) return;
  const xs = Array.from({ length: frame.layers }, (_, l) => l + 1);
  const [least, most] = [0, 1].map((end) => xs.map((_, l) => at(data.proxy, probe, l, end)));
  const exact = xs.map((_, l) => at(data.true, probe, l));
  const place = (x) => Math.min(Math.max(Math.round(x) - 1, 0), frame.layers - 1);
  const lines = [["summed query drift, at least", "#e69f00", [6, 3], least], ["at most", "#d55e00", [2, 3], most], ["true error of the attention output", "#0072b2", [], exact]];
  figure.show({
    title: shown + ": DARE's proxy and the true error, means over rows of √(s / (2 − s)), s = 1 − cosine",
    x: { name: "layer", from: 0.5, to: frame.layers + 0.5, whole: true },
    y: { name: "√(s / (2 − s))", from: 1e-4, to: 10, log: true, tick: (v) => (v < 2e-4 ? "≤ 10⁻⁴" : String(+v.toPrecision(1))) },
    series: lines.flatMap(([name, colour, dash, ys]) => [{ name, colour, dash, xs, ys }, { name: "", kind: "points", colour, size: 3.5, xs, ys }]),
    at: layer + 1,
    words: (x) => "Layer " + (place(x) + 1) + ": proxy " + least[place(x)].toPrecision(2) + " to " + most[place(x)].toPrecision(2) + ", true error " + exact[place(x)].toPrecision(2),
    pick: (x, _, pin) => panel.pick({ layer: place(x) }, pin),
    leave: () => panel.pick(null, false),
    height: 280,
  });
}
