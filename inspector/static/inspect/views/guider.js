const NOT_ASKED = [186, 194, 204];
const VERDICT_LOOKS = {
  accepted: [[0, 158, 115], "accepted", "✓"],
  mismatch: [[213, 94, 0], "first mismatch", "✗"],
  agreed: [[160, 216, 199], "agreed, but after the mismatch", "+"],
  refused: [[246, 202, 172], "not agreed, after the mismatch", "−"],
  fallback: [[0, 114, 178], "mismatch, committed by the fallback", "↓"],
  stop: [[45, 48, 58], "end of the text", "■"],
  filled: [[128, 136, 148], "filled after the end", "▪"],
  untold: [[240, 228, 66], "drafted, verdict not recorded", "?"],
};

INSPECT_VIEWS.guider = {
  title: "AR guider",
  level: "off",
  source: "guider",
  also: [["time", "off"]],
  about:
    "A small autoregressive model, the guider, checks the tokens that the diffusion model drafts in each step. They are accepted up to the first mismatch (FlashDLM). " +
    "A grey cell with a dot was not checked.",
  draw(panel, data) {
    guiderParts(panel, data.asked);
    if (!data.asked) return unguided(panel);
    const said = panel.block("said");
    const text = guiderSentence(data, panel.frame.steps);
    if (said.textContent !== text) said.textContent = text;
    const { cursor, frame, spot } = panel;
    const ruling = (step, position) => new Ruling(data, frame, panel.lane.start.stop, step, position);
    acceptanceRate(panel, data);
    guiderHeat(panel, data, ruling);
    const node = panel.block("ruling");
    const text_ = cursor.position === null ? "Choose an answer token to see why it was accepted or not." : ruling(spot.step, cursor.position).sentence();
    if (node.textContent !== text_) node.textContent = text_;
    guiderLack(panel, data);
    const time = panel.inspector.given(cursor.lane, "time");
    guiderNumbers(panel, data, time);
    acceptanceLengths(panel, data);
    acceptanceBreakEven(panel, data, time);
    acceptanceScatter(panel, data, ruling);
  },
};

function guiderParts(panel, asked) {
  panel.block("said", "p", "ds-wide");
  panel.figure("guider-rate");
  panel.figure("guider");
  panel.block("ruling", "p", "ds-why ds-wide");
  for (const node of panel.body.children) node.hidden = !asked && node.dataset.block !== "said" && node.dataset.figure !== "guider";
}

function shortened(axis, count) {
  return { ...axis, count, marks: axis.marks.filter((mark) => mark.at < count) };
}

function usedTokens(data) {
  const [steps, wide] = data.cells.shape;
  const filled = data.names.indexOf("filled");
  let last = 0;
  for (let y = 0; y < steps; y++) for (let x = last + 1; x < wide; x++) if (![NO_DATA, filled].includes(at(data.cells, y, x))) last = x;
  return Math.min(last + 2, wide);
}

function guiderFigure(panel, look, count = panel.answers().count) {
  const { frame, cursor, inspector, spot } = panel;
  const place = cursor.position === null ? -1 : cursor.position - frame.prompt;
  const figure = panel.figure("guider");
  figure.root.classList.add("ds-wide");
  figure.show({
    title: "The guider's verdict: step by answer token",
    key: "guider" + cursor.lane + inspector.key,
    x: shortened(panel.answers(), count),
    y: { name: "step", count: frame.steps },
    unit: "verdict",
    pick: (x, y, pin) => panel.pick({ position: frame.prompt + x, step: y }, pin),
    leave: () => panel.pick(null, false),
    at: { x: place < 0 || place >= count ? null : place, y: spot.step },
    height: Math.min(Math.max(frame.steps * 12 + 44, 240), 680),
    ...look,
  });
}

function unguided(panel) {
  panel.block("said").textContent =
    "This run has no guider: the unmasker committed every token without one. So there are no accepted tokens and no mismatches to show.";
  guiderFigure(panel, {
    value: () => 0,
    colour: () => NOT_ASKED,
    glyph: () => "·",
    legend: { items: [[[0, 158, 115], "accepted", "✓"], [[213, 94, 0], "mismatch", "✗"], [NOT_ASKED, "not checked", "·"]] },
    plain: () => "not checked",
    words: (x, y) => "Answer token " + (x + 1) + ", " + panel.text(panel.frame.prompt + x, y) + ", step " + (y + 1) + ": not checked by a guider",
  });
}

function guiderHeat(panel, data, ruling) {
  const { frame } = panel;
  const look = (code) => VERDICT_LOOKS[data.names[code]] || [NOT_ASKED, "not drafted", "·"];
  const seen = data.names.filter((name, code) => ["accepted", "mismatch"].includes(name) || data.cells.values.includes(code));
  const known = (x, y) => frame.before.values[frame.prompt + x] || (frame.revealed.values[frame.prompt + x] >= 0 && frame.revealed.values[frame.prompt + x] < y);
  guiderFigure(panel, {
    value: (x, y) => {
      const code = at(data.cells, y, x);
      return code === NO_DATA && known(x, y) ? null : code;
    },
    colour: (code) => look(code)[0],
    glyph: (code) => look(code)[2],
    legend: { items: [...seen.map((name) => VERDICT_LOOKS[name]), [NOT_ASKED, "not drafted", "·"]] },
    blank: "known before",
    plain: (code) => look(code)[1],
    words: (x, y) => ruling(y, frame.prompt + x).short(),
  }, usedTokens(data));
}

function guiderSentence(data, steps) {
  const { about, rule, numbers } = data;
  const sizes = [about.parameters ? number(about.parameters) + " parameters" : "", about.shared ? "the same vocabulary" : "another vocabulary"].filter(Boolean).join(", ");
  const rules = {
    top1: "the token is its first choice", topk: "the token is one of its " + rule.k + " first choices",
    rel: "the token is one of its " + rule.k + " first choices, with at least " + rule.tau + " times the probability of its first choice",
    rel_dlm: "the diffusion model's highest probability is more than " + rule.tau + " times its own highest probability",
  };
  return (
    "Guider " + (about.name || rule.guider) + " (" + sizes + ") agrees where " + rules[rule.rule] + ". " +
    plural(numbers.accepted, "token") + " of " + number(numbers.drafted) + " drafted were accepted in " + plural(steps, "step") + ", " +
    number(numbers.tokens / steps, 2) + " tokens per step including the fallback's." + guiderRest(data)
  );
}

function guiderRest(data) {
  const [used, wide] = [usedTokens(data), data.cells.shape[1]];
  return used < wide ? " The map leaves out the answer tokens from " + (used + 1) + " on. They were never drafted." : "";
}

function guiderLack(panel, data) {
  const note = panel.block("lack", "p", "ds-note ds-wide");
  note.hidden = data.recorded;
  if (data.recorded) return;
  note.textContent =
    "This run has the result of each step, but not the verdict on each token: the verdicts after the first mismatch, both probabilities and the guider's own tokens are missing. " +
    (props.offline ? "" : "Press Record above to run it again with the recorder on.");
}

function guiderNumbers(panel, data, time) {
  const { numbers } = data;
  const timed = time && !time.missing && time.guider_ms.shape[0] ? guiderTimes(time) : null;
  const share = (part) => (part === null || part === undefined ? "–" : percent(part));
  const rows = [
    ["Fallback rate", share(numbers.fallback_rate) + " of the steps"],
    ["Drafted tokens among the guider's first 1, 2 and 5 choices", [numbers.top1, numbers.top2, numbers.top5].map(share).join(", ")],
    ["Mean −log p of the draft by the guider", number(numbers.nll, 3) + " nats"],
    ["KL, diffusion model from guider", numbers.kl === null ? (data.about.shared ? "not recorded" : "the vocabularies differ") : number(numbers.kl, 3) + " nats"],
    ["Straddle loss", plural(numbers.straddle_loss, "byte") + (data.about.shared ? " (the same vocabulary)" : "")],
    ["Tokens per forward", number(numbers.per_forward, 2) + " of the diffusion model, " + number(numbers.per_guider_forward, 2) + " of the guider"],
    ["Tokens processed by the guider", plural(numbers.fed, "token") + " in " + plural(numbers.forwards, "forward") + ", after a prompt of " + number(numbers.prefilled)],
    ["Guider's share of FLOPs", share(numbers.flops_share) + " of the run, its prompt alone " + share(numbers.prefill_share)],
    ["Guider's share of time", timed ? share(timed.share) + " of the run, its prompt alone " + share(timed.prefill) : "recorded runs show no times"],
  ];
  const list = panel.block("numbers", "dl", "ds-facts ds-wide");
  const key = JSON.stringify(rows);
  if (list.dataset.key === key) return;
  list.dataset.key = key;
  list.replaceChildren(...rows.map(([name, value]) => {
    const pair = make("div");
    pair.append(make("dt", "", name), make("dd", "", value));
    return pair;
  }));
}

function guiderTimes(time) {
  const add = (values) => values.reduce((sum, value) => sum + value, 0);
  const whole = add(time.forward_ms.values) + add(time.decide_ms.values);
  const steps = time.guider_ms.shape[0];
  const part = (i) => add(Array.from({ length: steps }, (_, s) => at(time.guider_ms, s, i)));
  return { share: part(0) / whole, prefill: part(1) / whole };
}
