const FIRST_TIME = [0, 158, 115];

INSPECT_VIEWS.card = {
  title: "Token",
  level: "off",
  also: [["why", "steps"], ["drift", "layers"], ["candidates", "steps"]],
  beside: true,
  about: "",
  draw(panel) {
    const { frame, cursor, inspector } = panel;
    const step = Math.min(cursor.step, frame.steps - 1);
    const cell = { step, layer: Math.min(cursor.layer, frame.layers - 1), position: cursor.position };
    const given = (name) => {
      const found = inspector.given(cursor.lane, name);
      return found && !found.missing ? found : null;
    };
    const plans = frame.plan.shape[0] > 0;
    cardHead(panel, cell);
    cardWhy(panel, cell, given, plans);
    cardCandidates(panel, cell, given("candidates"));
    for (const figure of Object.values(panel.figures)) figure.root.hidden = !plans;
    if (!plans) return;
    cardSeries(panel, cell, given("drift"));
    cardMap(panel, cell, given("drift"));
  },
};

function cardHead(panel, { step, layer, position }) {
  const { frame } = panel;
  const place = position - frame.prompt;
  const at = frame.revealed.values[position];
  const token = place >= 0 ? panel.lane.at[place] : null;
  const given = place < 0 ? "prompt" : frame.before.values[position] ? "known before the first step" : "";
  const sure = token && token.sure !== null && token.sure !== undefined ? ", confidence " + token.sure.toFixed(3) : "";
  const rows = [
    ["Token", panel.text(position, step) + (at >= step ? ", becomes " + panel.text(position, frame.steps) : "")],
    ["Id", String(frame.ids.values[position])],
    ["Position", "position " + (position + 1) + (place < 0 ? "" : ", answer token " + (place + 1) + ", block " + (Math.floor(place / frame.block) + 1))],
    ["Unmasked", given || (at < 0 ? "not in this run" : "at step " + (at + 1) + sure)],
  ];
  if (frame.plan.shape[0]) rows.push(["Recomputed", cardCounts(frame, position, layer)]);
  const list = panel.block("head", "dl", "ds-facts ds-wide");
  list.replaceChildren(...rows.map(([name, value]) => {
    const pair = make("div");
    pair.append(make("dt", "", name), make("dd", "", value));
    return pair;
  }));
}

function cardCounts(frame, position, layer) {
  const counts = [0, 0, 0, 0];
  for (let s = 0; s < frame.steps; s++) for (let site = 0; site < 4; site++) counts[site] += bit(frame.plan, position, s, layer, site);
  const names = ["K", "V", "attention", "feed-forward"];
  return "in layer " + (layer + 1) + ", of " + plural(frame.steps, "step") + ": " + names.map((name, i) => name + " " + counts[i]).join(", ");
}

function cardWhy(panel, cell, given, plans) {
  const node = panel.block("why", "p", "ds-why ds-wide");
  const rules = given("why");
  let text = "This run has no recorded plans: press Record to see why a row was recomputed.";
  if (plans) text = rules ? new Why(panel.frame, rules, given("drift"), cell).sentence() : "Reading …";
  if (node.textContent !== text) node.textContent = text;
}

function cardCandidates(panel, { step, position }, data) {
  const node = panel.block("candidates", "p", "ds-wide");
  const row = data ? candidateRow(data, panel.frame, step, position) : -1;
  node.hidden = row < 0;
  if (row < 0) return;
  const best = candidateList(data, row).map(({ piece, prob }) => quoted(piece) + " " + prob.toFixed(3));
  node.textContent = "At step " + (step + 1) + " it was a candidate: " + best.join(", ") + ".";
}

function cardSeries(panel, cell, data) {
  const { frame } = panel;
  const inks = inspectInks(panel.root);
  const series = [];
  for (const [name, label, colour, dash] of [["k", "K", inks.a, [5, 3]], ["v", "V", inks.b, []]]) {
    const { xs, ys } = cardLine(frame, data, name, cell);
    series.push({ name: label, colour, dash, xs, ys }, { name: "", kind: "points", colour, xs, ys });
  }
  const ticks = [];
  for (let s = 0; s < frame.steps; s++) if (bit(frame.plan, cell.position, s, cell.layer, 1)) ticks.push(s + 1);
  series.push({ name: "V recomputed at this step", kind: "points", colour: inks.ink, size: 2, xs: ticks, ys: ticks.map(() => 0.8) });
  const at = frame.revealed.values[cell.position];
  panel.figure("card-series").show({
    title: "Drift of K and V of this token in layer " + (cell.layer + 1) + ": 1 − cosine to the previous value",
    x: { name: "step", from: 0.5, to: frame.steps + 0.5, whole: true },
    y: { name: "1 − cosine", from: 1e-4, to: 1, log: true },
    series,
    rules: at < 0 ? [] : [{ x: at + 1, colour: inks.new, text: "unmasked" }],
    at: cell.step + 1,
    words: (x) => cardWords(frame, data, Math.min(Math.max(Math.round(x) - 1, 0), frame.steps - 1), cell),
    pick: (x, _, pin) => panel.pick({ step: Math.min(Math.max(Math.round(x) - 1, 0), frame.steps - 1) }, pin),
    leave: () => panel.pick(null, false),
    height: 200,
  });
}

function cardCode(data, name, step, layer, position) {
  return data ? at(data.drift, step, layer, data.quantities.indexOf(name), position) : NO_DATA;
}

function cardLine(frame, data, name, { layer, position }) {
  const [xs, ys] = [[], []];
  for (let s = 0; s < frame.steps; s++) {
    const code = cardCode(data, name, s, layer, position);
    if (code === NO_DATA) continue;
    xs.push(s + 1);
    ys.push(Math.max(DRIFT[code], 1e-4));
  }
  return { xs, ys };
}

function cardWords(frame, data, step, { layer, position }) {
  const parts = ["k", "v"].map((name) => name.toUpperCase() + " " + driftText(cardCode(data, name, step, layer, position)));
  const sites = ["K", "V", "attention", "feed-forward"].filter((_, i) => bit(frame.plan, position, step, layer, i));
  return "Step " + (step + 1) + ": " + parts.join(", ") + "; recomputed: " + (sites.join(", ") || "nothing");
}

function cardMap(panel, cell, data) {
  const { frame, cursor, inspector } = panel;
  const value = (x, y) => {
    if (!bit(frame.plan, cell.position, x, y, 1)) return null;
    const code = cardCode(data, "v", x, y, cell.position);
    return code === NO_DATA ? 300 : code;
  };
  panel.figure("card-map").show({
    title: "Drift of V of this token: layer by step",
    key: "card" + cell.position + "," + cursor.lane + inspector.key + Boolean(data),
    x: { name: "step", count: frame.steps },
    y: { name: "layer", count: frame.layers },
    value,
    colour: (code) => (code === 300 ? FIRST_TIME : driftColour(code)),
    glyph: (code) => (code === 300 ? "•" : ""),
    legend: { ...DRIFT_SCALE, items: [[FIRST_TIME, data ? "computed, no previous value" : "computed", "•"]] },
    blank: "reused",
    unit: "1 - cosine",
    plain: (code) => (code === 300 ? "computed" : DRIFT[code]),
    words: (x, y) => "Layer " + (y + 1) + ", " + cardWords(frame, data, x, { layer: y, position: cell.position }),
    pick: (x, y, pin) => panel.pick({ step: x, layer: y }, pin),
    leave: () => panel.pick(null, false),
    at: { x: cell.step, y: cell.layer },
    height: 200,
  });
}
