const PART_COLOURS = { projections: "#0072b2", attention: "#e69f00", ffn: "#009e73", head: "#cc79a7", selection: "#d55e00", guider: "#56b4e9" };
const PART_NAMES = { projections: "projections", attention: "attention", ffn: "feed-forward", head: "head", selection: "selection", guider: "guider" };

INSPECT_VIEWS.time = {
  title: "Time",
  level: "off",
  also: [["time", "off"], ["rho", "off"]],
  about:
    "The time of each step of the timed run, measured by the engine, and the FLOPs of each step. Both lanes have the same scale; the chart below shows the cumulative sums. " +
    "FLOPs are counted separately for each part of the network; times are not. The last figure is a measured sweep over dLLM-Cache's ratio on the embedded model (dLLM-Cache, figure 6).",
  controls: [
    { name: "unit", label: "Show", value: "ms", options: [["ms", "milliseconds"], ["flops", "GFLOPs"]] },
  ],
  draw(panel) {
    const { inspector } = panel;
    const lanes = inspector.store.started.map((lane) => ({ name: lane.name, data: inspector.given(lane.name, "time") }));
    const shown = lanes.filter(({ data }) => data && !data.missing).map((lane) => ({ ...lane, bars: timeBars(lane.data, panel.values.unit) }));
    const why = lanes.map(({ data }) => (data ? data.missing : "Reading …")).find(Boolean) || "";
    const note = panel.block("untimed", "p", "ds-wide");
    for (const name of ["time-a", "time-b", "time-sum"]) panel.figure(name);
    note.hidden = !why;
    note.textContent = why;
    for (const [name, figure] of Object.entries(panel.figures)) figure.root.hidden = !name.startsWith("rho") && !shown.some((lane) => name === "time-sum" || name === "time-" + lane.name);
    const most = Math.max(0, ...shown.flatMap(({ bars }) => bars.total));
    const steps = Math.max(1, ...shown.map(({ bars }) => bars.total.length));
    for (const lane of shown) timeFigure(panel, lane, most, steps);
    if (shown.length) timeSum(panel, shown, steps);
    rhoFigure(panel, inspector.given(panel.cursor.lane, "rho"));
  },
};

function timeBars(data, unit) {
  data.bars = data.bars || {};
  if (data.bars[unit]) return data.bars[unit];
  const steps = data.forward_ms.values.length;
  const parts = unit === "ms"
    ? timeClocks(data)
    : timeParts(data, steps);
  const total = new Array(steps).fill(0);
  const stacked = parts.map(([name, colour, ys]) => {
    const base = total.slice();
    ys.forEach((y, s) => (total[s] += y));
    return { name, colour, ys, base };
  });
  let sum = 0;
  data.bars[unit] = { stacked, total, running: total.map((y) => (sum += y)) };
  return data.bars[unit];
}

function timeClocks(data) {
  const [network, deciding] = [Array.from(data.forward_ms.values), Array.from(data.decide_ms.values)];
  const parts = [["network", "#0072b2", network], ["deciding", "#e69f00", deciding]];
  if (!data.guider_ms.shape[0]) return parts;
  const [whole, prompt] = [0, 1].map((i) => network.map((_, s) => at(data.guider_ms, s, i)));
  parts[1][2] = deciding.map((ms, s) => Math.max(ms - whole[s], 0));
  return [...parts, ["guider", PART_COLOURS.guider, whole.map((ms, s) => ms - prompt[s])], ["guider's prefill", "#009e73", prompt]];
}

function timeParts(data, steps) {
  const parts = data.parts.map((name, i) => [PART_NAMES[name], PART_COLOURS[name], Array.from({ length: steps }, (_, s) => at(data.gflops, s, i))]);
  return data.guider_ms.shape[0] ? parts : parts.filter(([name]) => name !== PART_NAMES.guider);
}

function timeUnit(panel) {
  return panel.values.unit === "ms" ? "ms" : "GFLOPs";
}

function stepAxis(steps) {
  return { name: "step", from: 0.5, to: steps + 0.5, whole: true };
}

function stepAt(x, steps) {
  return Math.min(Math.max(Math.round(x) - 1, 0), steps - 1);
}

function timePick(panel, lane, x, steps, pin) {
  panel.pick({ lane, step: stepAt(x, steps) }, pin);
}

function timeFigure(panel, { name, bars }, most, steps) {
  const unit = timeUnit(panel);
  const xs = bars.total.map((_, s) => s + 1);
  panel.figure("time-" + name).show({
    title: "Lane " + name.toUpperCase() + ": " + (unit === "ms" ? "time of each step" : "FLOPs of each step"),
    x: stepAxis(steps),
    y: { name: unit, from: 0, to: most * 1.05 || 1 },
    series: bars.stacked.map((part) => ({ ...part, kind: "bars", xs, wide: 0.9 })),
    at: panel.cursor.lane === name ? panel.cursor.step + 1 : null,
    words: (x) => timeWords(panel, name, bars, stepAt(x, xs.length), unit),
    pick: (x, _, pin) => timePick(panel, name, x, xs.length, pin),
    leave: () => panel.pick(null, false),
    height: 220,
  });
}

function timeWords(panel, name, bars, step, unit) {
  const row = panel.inspector.store.lanes[name].rows[step];
  const parts = bars.stacked.map((part) => part.name + " " + number(part.ys[step], 3));
  const tokens = row ? ", " + plural(row.forwards, "forward") + ", " + plural(row.places.length, "token") + " committed" : "";
  return "Lane " + name.toUpperCase() + ", step " + (step + 1) + ": " + number(bars.total[step], 3) + " " + unit + " (" + parts.join(", ") + "), " + number(bars.running[step], 2) + " so far" + tokens;
}

function timeSum(panel, shown, steps) {
  const inks = inspectInks(panel.root);
  const unit = timeUnit(panel);
  const most = Math.max(...shown.map(({ bars }) => bars.running[bars.running.length - 1] || 0));
  panel.figure("time-sum").show({
    title: "Both lanes: cumulative sum",
    x: stepAxis(steps),
    y: { name: unit, from: 0, to: most * 1.05 || 1 },
    series: shown.map(({ name, bars }) => ({
      name: "Lane " + name.toUpperCase(), colour: inks[name], dash: name === "a" ? [6, 3] : [],
      xs: bars.running.map((_, s) => s + 1), ys: bars.running,
    })),
    at: panel.cursor.step + 1,
    words: (x) => shown.map(({ name, bars }) => {
      const step = stepAt(x, bars.running.length);
      return "Lane " + name.toUpperCase() + " after step " + (step + 1) + ": " + number(bars.running[step], 2) + " " + unit;
    }).join("; "),
    pick: (x, _, pin) => timePick(panel, panel.cursor.lane, x, panel.frame.steps, pin),
    leave: () => panel.pick(null, false),
    height: 220,
  });
}

const RHO_LOOKS = [["#0072b2", []], ["#d55e00", [6, 3]], ["#009e73", [2, 3]], ["#cc79a7", [8, 3, 2, 3]]];

function rhoFigure(panel, data) {
  const said = panel.block("rho", "p", "ds-wide");
  const lack = !data ? "Reading …" : data.missing || "";
  said.textContent = lack || rhoSentence(data);
  if (lack) return;
  const series = [];
  data.fits.forEach((fit, i) => {
    const [colour, dash] = RHO_LOOKS[i % RHO_LOOKS.length];
    const points = data.points.filter((point) => point.interval === fit.interval);
    const line = (rho) => 1000 / (fit.a0 + (rho > 0 ? fit.a1 : 0) + fit.b * rho);
    const xs = Array.from({ length: 51 }, (_, k) => Math.max(k / 50, 1e-6));
    series.push({ name: "K_r = " + fit.interval, colour, dash, xs, ys: xs.map(line) });
    series.push({ name: "", kind: "points", colour, size: 4, xs: points.map((p) => p.rho), ys: points.map((p) => 1000 / p.tpot_ms) });
  });
  const most = Math.max(...data.points.map((p) => 1000 / p.tpot_ms));
  const figure = panel.figure("rho");
  figure.root.classList.add("ds-wide");
  figure.show({
    title: "Measured sweep, dLLM-Cache: tokens per second by ρ, the share of the answer recomputed between refreshes",
    x: { name: "ρ", from: 0, to: 1 },
    y: { name: "tokens/s", from: 0, to: most * 1.05 },
    series,
    words: (x) => rhoWords(data, x),
    height: 280,
  });
}

function rhoWords(data, x) {
  const ratios = [...new Set(data.points.map((p) => p.rho))];
  const near = ratios.reduce((best, rho) => (Math.abs(rho - x) < Math.abs(best - x) ? rho : best));
  const found = data.points.filter((p) => p.rho === near);
  return "ρ = " + near + ": " + found.map((p) => "K_r " + p.interval + " " + number(1000 / p.tpot_ms, 0) + " tokens/s (" + p.tpot_ms.toFixed(2) + " ms per token)").join(", ");
}

function rhoSentence(data) {
  const costs = data.fits.map((fit) => fit.a1.toFixed(2) + " of " + (fit.a0 + fit.a1).toFixed(2) + " ms at K_r = " + fit.interval);
  const worst = Math.min(...data.fits.map((fit) => fit.r2));
  return (
    "The fixed cost a₁ per token of selecting any rows at all, as part of the time at the smallest ρ: " + costs.join("; ") + ". " +
    "The lines are least-squares fits of 1 / (a₀ + a₁ + b ρ), without a₁ at ρ = 0. For every K_r they explain at least " + Math.floor(100 * worst) + " % of the variance. " +
    data.model + ", prompt of " + data.prompt_tokens + " tokens, answer of " + data.gen_length + ", median of " + plural(data.rounds, "round") + " on " + data.environment.device_name + ", " + plural(data.environment.threads, "thread") + "."
  );
}
