const VERDICT_POINTS = [
  ["accepted", ["accepted", "stop"], "#009e73", "dot"],
  ["agreed, after the mismatch", ["agreed"], "#56b4e9", "dot"],
  ["not agreed", ["mismatch", "refused", "fallback"], "#d55e00", "cross"],
];

function guidedSteps(panel, figure, shape) {
  const { frame, spot } = panel;
  return panel.figure(figure).show({
    x: stepAxis(frame.steps),
    at: spot.step + 1,
    pick: (x, _, pin) => panel.pick({ step: stepAt(x, frame.steps) }, pin),
    leave: () => panel.pick(null, false),
    height: 220,
    ...shape,
  });
}

function acceptanceRate(panel, data) {
  const { steps } = panel.frame;
  const xs = Array.from({ length: steps }, (_, s) => s + 1);
  const [taken, mean] = [Array.from(data.accepted.values), Array.from(data.mean.values)];
  const fell = xs.filter((s) => taken[s - 1] === 0);
  const most = Math.max(1, ...taken);
  panel.figure("guider-rate").root.classList.add("ds-wide");
  guidedSteps(panel, "guider-rate", {
    title: "Tokens accepted in each step, and their mean so far",
    y: { name: "tokens", from: 0, to: most * 1.08, whole: true },
    series: [
      { name: "accepted", kind: "bars", colour: "#009e73", xs, ys: taken, wide: 0.9 },
      { name: "none: the fallback's one token", kind: "points", mark: "cross", colour: inspectInks(panel.root).mark, size: 4, xs: fell, ys: fell.map(() => Math.min(1, most)) },
      { name: "mean so far", colour: inspectInks(panel.root).mark, dash: [6, 3], xs, ys: mean },
    ],
    words: (x) => {
      const s = stepAt(x, steps);
      return "Step " + (s + 1) + ": " + taken[s] + " of " + plural(data.drafted.values[s], "drafted token") + " accepted, " + mean[s].toFixed(2) + " per step so far";
    },
    height: 190,
  });
}

function acceptanceLengths(panel, data) {
  const counts = Array.from(data.histogram.values);
  const survival = Array.from(data.survival.values);
  const near = (x) => Math.min(Math.max(Math.round(x), 0), counts.length - 1);
  const x = { name: "tokens accepted", from: -0.5, to: counts.length - 0.5, whole: true };
  const xs = counts.map((_, j) => j);
  const colour = inspectInks(panel.root).b;
  panel.figure("guider-histogram").show({
    title: "Steps by the number of tokens accepted",
    x,
    y: { name: "steps", from: 0, to: Math.max(...counts) * 1.08, whole: true },
    series: [{ name: "steps", kind: "bars", colour: "#009e73", xs, ys: counts }],
    words: (at_) => plural(counts[near(at_)], "step") + " accepted " + plural(near(at_), "token"),
    height: 220,
  });
  panel.figure("guider-survival").show({
    title: "Survival: share of steps that accepted at least j tokens",
    x: { ...x, name: "j" },
    y: { name: "share", from: 0, to: 1.02 },
    series: [
      { name: "S(j) = Pr(k ≥ j)", colour, xs, ys: survival },
      { name: "", kind: "points", colour, size: 3.5, xs, ys: survival },
    ],
    words: (at_) => percent(survival[near(at_)]) + " of the steps accepted at least " + plural(near(at_), "token"),
    height: 220,
  });
}

function verdictPoints(panel, data) {
  const { frame } = panel;
  const groups = VERDICT_POINTS.map(([name, codes, colour, mark]) => ({ name, codes, colour, mark, kind: "points", size: 4, alpha: 0.75, xs: [], ys: [], rows: [] }));
  data.draft_step.values.forEach((step, row) => {
    const place = data.draft_position.values[row] - frame.prompt;
    const group = groups.find(({ codes }) => codes.includes(data.names[at(data.cells, step, place)]));
    const p_g = data.draft_p_g.values[row];
    if (!group || Number.isNaN(p_g)) return;
    group.xs.push(data.draft_p_f.values[row]);
    group.ys.push(p_g);
    group.rows.push(row);
  });
  return groups;
}

function nearestPoint(groups, x, y) {
  let [best, row] = [Infinity, -1];
  for (const group of groups) {
    group.xs.forEach((px, i) => {
      const far = (px - x) ** 2 + (group.ys[i] - y) ** 2;
      if (far < best) [best, row] = [far, group.rows[i]];
    });
  }
  return row;
}

function acceptanceScatter(panel, data, ruling) {
  const key = panel.cursor.lane + panel.inspector.key;
  if (data.pointsKey !== key) Object.assign(data, { pointsKey: key, points: verdictPoints(panel, data) });
  const place = (row) => ({ step: data.draft_step.values[row], position: data.draft_position.values[row] });
  const figure = panel.figure("guider-scatter");
  figure.root.hidden = !data.recorded;
  if (!data.recorded) return;
  figure.show({
    title: "Probability of each drafted token: by the diffusion model and by the guider",
    x: { name: "diffusion model", from: 0, to: 1 },
    y: { name: "guider", from: 0, to: 1 },
    series: data.points,
    words: (x, y) => {
      const row = nearestPoint(data.points, x, y);
      return row < 0 ? "No drafted token has both probabilities." : ruling(place(row).step, place(row).position).short();
    },
    pick: (x, y, pin) => {
      const row = nearestPoint(data.points, x, y);
      if (row >= 0 && pin) panel.pick(place(row), true);
    },
    square: 420,
  });
}

function acceptanceBreakEven(panel, data, time) {
  const { steps } = panel.frame;
  const xs = Array.from({ length: steps }, (_, s) => s + 1);
  const timed = time && !time.missing && time.needed.shape[0] === steps ? Array.from(time.needed.values) : null;
  const lines = [
    ["reached: tokens per step so far", inspectInks(panel.root).b, [], Array.from(data.reached.values)],
    ["needed, by FLOPs", "#d55e00", [7, 3], Array.from(data.needed.values)],
  ];
  if (timed) lines.push(["needed, by the clock", "#cc79a7", [2, 3], timed]);
  const most = Math.max(2, ...lines.flatMap(([, , , ys]) => ys.filter(Number.isFinite)));
  guidedSteps(panel, "guider-even", {
    title: "Break-even: tokens per step needed to offset the guider's cost, and reached",
    y: { name: "tokens per step", from: 0, to: most * 1.06 },
    series: lines.map(([name, colour, dash, ys]) => ({ name, colour, dash, xs, ys })),
    words: (x) => "Up to step " + (stepAt(x, steps) + 1) + ": " + lines.map(([name, , , ys]) => name.split(":")[0] + " " + number(ys[stepAt(x, steps)], 2)).join("; "),
    height: 260,
  });
}
