const KIND_LOOKS = [
  ["full", [0, 114, 178], "●"], ["partial", [86, 180, 233], "◐"],
  ["reuse", [240, 228, 66], "○"], ["frozen", [158, 165, 175], "✱"],
];
const REGION_WORDS = ["prompt", "current block", "rest of the answer"];
const REGION_TICKS = ["prompt", "block", "rest"];
const SITE_OPTIONS = [["0", "K"], ["1", "V"], ["2", "attention output"], ["3", "feed-forward output"]];
const PART_SCALE = {
  kind: "scale", name: "share of rows recomputed", colour: cividis,
  ticks: [[0, "0"], [0.25, "0.25"], [0.5, "0.5"], [0.75, "0.75"], [1, "1"]],
};

INSPECT_VIEWS.schedule = {
  title: "Refresh schedule",
  level: "steps",
  source: "schedule",
  about:
    "What each step recomputed of the prompt, the current block and the rest of the answer: as planned by the method's schedule (above) and as done (below). " +
    "Full: all rows, in every layer and site. Partial: some of them. Reuse: none. Frozen: none, in this and all later steps. A row belongs to the region of the token that it predicts. " +
    "The other figures show the share of rows recomputed in each layer, and over the run.",
  controls: [
    { name: "site", label: "Share of", value: "mean", options: [["mean", "all four (mean)"], ...SITE_OPTIONS] },
  ],
  draw(panel, data) {
    scheduleKinds(panel, data);
    const said = panel.block("differs", "p", "ds-wide");
    const text = scheduleSentence(data, panel.frame.steps);
    if (said.textContent !== text) said.textContent = text;
    scheduleLayers(panel, data);
    scheduleRunning(panel);
  },
};

function scheduleKinds(panel, data) {
  const { inspector, cursor } = panel;
  const recorded = data.planned.shape[0] > 0;
  const kind = (x, y) => (y > 2 ? at(data.done, x, y - 3) : recorded ? at(data.planned, x, y) : null);
  const differs = Array.from({ length: data.differs.shape[0] }, (_, i) => [at(data.differs, i, 0), at(data.differs, i, 1) + 3]);
  const figure = panel.figure("schedule-kinds");
  figure.root.classList.add("ds-wide");
  figure.show({
    title: "Step by region: planned above the line, done below",
    key: "kinds" + cursor.lane + inspector.key,
    left: 108,
    x: panel.steps(),
    y: { name: "region", count: 6, tick: (i) => (i > 2 ? "done: " : "planned: ") + REGION_TICKS[i % 3], marks: [{ at: 3, strong: true }] },
    value: kind,
    colour: (k) => KIND_LOOKS[k][1],
    glyph: (k) => KIND_LOOKS[k][2],
    legend: { items: KIND_LOOKS.map(([name, colour, glyph]) => [colour, name, glyph]) },
    unit: "kind",
    plain: (k) => KIND_LOOKS[k][0],
    words: (x, y) => scheduleWords(data, x, y % 3),
    pick: (x, _, pin) => panel.pick({ step: x }, pin),
    leave: () => panel.pick(null, false),
    at: { x: panel.spot.step, y: null },
    dots: differs,
    dotName: "done differs from planned",
    height: 190,
  });
}

function scheduleKind(data, name, step, region) {
  return data[name].shape[0] ? KIND_LOOKS[at(data[name], step, region)][0] : "not recorded";
}

function scheduleWords(data, step, region) {
  const part = at(data.portion, step, region);
  const share = Number.isNaN(part) ? "an empty region" : number(100 * part, 1) + " % of its token-layers recomputed";
  const [planned, done] = ["planned", "done"].map((name) => name + " " + scheduleKind(data, name, step, region));
  return "Step " + (step + 1) + ", " + REGION_WORDS[region] + ": " + planned + ", " + done + "; " + share;
}

function scheduleSentence(data, steps) {
  if (!data.planned.shape[0]) return "This trace has no planned schedule, only what was done.";
  const count = data.differs.shape[0];
  if (!count) return "Every step matched the planned schedule.";
  const [step, region] = [at(data.differs, 0, 0), at(data.differs, 0, 1)];
  const first = ["planned", "done"].map((name) => name + " " + scheduleKind(data, name, step, region)).join(", ");
  return (
    "Done differs from planned in " + count + " of " + 3 * steps + " cells; first in step " + (step + 1) + ", " + REGION_WORDS[region] + ": " + first + ". " +
    "The planned schedule depends only on the settings. Where rows are chosen by their values, all or none of them may be chosen."
  );
}

function scheduleShare(data, site, step, layer) {
  if (site !== "mean") return at(data.share, step, layer, +site);
  return [0, 1, 2, 3].reduce((sum, i) => sum + at(data.share, step, layer, i), 0) / 4;
}

function scheduleLayers(panel, data) {
  const { frame, inspector, cursor, spot } = panel;
  const { site } = panel.values;
  const name = site === "mean" ? "mean of K, V, attention and feed-forward" : SITE_OPTIONS[+site][1];
  panel.figure("schedule-layers").show({
    title: "Share of all rows recomputed, " + name + ": layer by step",
    key: "layers" + site + cursor.lane + inspector.key,
    x: panel.steps(),
    y: { name: "layer", count: frame.layers },
    value: (x, y) => scheduleShare(data, site, x, y),
    colour: cividis,
    legend: PART_SCALE,
    unit: "share of rows recomputed",
    words: (x, y) => {
      const shares = ["K", "V", "attention", "feed-forward"].map((text, i) => text + " " + number(100 * at(data.share, x, y, i), 1) + " %");
      return "Step " + (x + 1) + ", layer " + (y + 1) + ": " + shares.join(", ") + " of " + plural(frame.positions, "row") + " recomputed";
    },
    pick: (x, y, pin) => panel.pick({ step: x, layer: y }, pin),
    leave: () => panel.pick(null, false),
    at: { x: spot.step, y: spot.layer },
    height: 260,
  });
}

function scheduleRunning(panel) {
  const { inspector } = panel;
  const inks = inspectInks(panel.root);
  const lanes = inspector.store.started
    .map(({ name }) => ({ name, data: inspector.given(name, "schedule") }))
    .filter(({ data }) => data && !data.missing)
    .map(({ name, data }) => ({ name, ys: Array.from(data.running.values) }));
  const steps = Math.max(...lanes.map(({ ys }) => ys.length), 1);
  const place = (x, count) => Math.min(Math.max(Math.round(x) - 1, 0), count - 1);
  panel.figure("schedule-running").show({
    title: "Token-layers recomputed up to each step, as a share of plain decoding",
    x: { name: "step", from: 0.5, to: steps + 0.5, whole: true },
    y: { name: "% so far", from: 0, to: 100 },
    series: lanes.map(({ name, ys }) => ({
      name: "Lane " + name.toUpperCase(), colour: inks[name], dash: name === "a" ? [6, 3] : [], xs: ys.map((_, i) => i + 1), ys,
    })),
    at: panel.spot.step + 1,
    words: (x) => lanes.map(({ name, ys }) => "Lane " + name.toUpperCase() + ": " + number(ys[place(x, ys.length)], 1) + " % after step " + (place(x, ys.length) + 1)).join("; "),
    pick: (x, _, pin) => panel.pick({ step: place(x, panel.frame.steps) }, pin),
    leave: () => panel.pick(null, false),
    height: 260,
  });
}
