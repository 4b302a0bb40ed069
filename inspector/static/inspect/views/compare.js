const PUOR = [
  [127, 59, 8], [179, 88, 6], [224, 130, 20], [253, 184, 99], [254, 224, 182], [247, 247, 247],
  [216, 218, 235], [178, 171, 210], [128, 115, 172], [84, 39, 136], [45, 0, 75],
];
const STEP_RANGE = 64;
const SAME = [200, 208, 218];
const DIFFERENT = [213, 94, 0];
const RATIOS = [
  ["forwards", "Forwards"], ["nfe", "Steps (NFE)"], ["total_ms", "Engine time, ms", "timed"],
  ["tokens_per_s", "Tokens before the end per second", "timed"], ["positions_per_s", "Positions per second", "timed"],
  ["gflops", "GFLOPs"], ["gflops_guider", "… of the guider", "guided"], ["guider_ms", "Guider time, ms", "guided-timed"],
  ["tokens_per_nfe", "Tokens before the end per step", "guided"], ["tokens_per_guider_forward", "… per guider forward", "guided"],
  ["accepted", "Tokens accepted per step", "guided"], ["fallback_rate", "Steps that used the fallback, %", "guided-share"],
  ["guider_weight_bytes", "Guider's weights, bytes", "guided"], ["guider_cache_bytes", "Guider's cache, bytes", "guided"],
  ["recomputed", "Token-layers recomputed, %", "share"],
  ["cache_bytes", "Cache, bytes"], ["peak_memory_bytes", "Peak memory, bytes"],
];
const ALIGNED = {
  time: "by time: each lane shows its tokens after the same run time",
  step: "by step: both lanes show the same number of steps",
  tokens: "by tokens revealed: both lanes show the same number of tokens",
};

function puor(value) {
  const place = Math.min(Math.max(value, 0), 1) * (PUOR.length - 1);
  const low = Math.min(Math.floor(place), PUOR.length - 2);
  return PUOR[low].map((c, i) => Math.round(c + (PUOR[low + 1][i] - c) * (place - low)));
}

INSPECT_VIEWS.compare = {
  title: "Compare",
  level: "off",
  also: [["candidates", "steps"]],
  about:
    "Where and why the two lanes differ, and the cost of each. The upper row of the strip compares when each answer token was unmasked: " +
    "orange, ◂ and a line above if lane B was earlier than lane A; purple, ▸ and a line below if it was later. The lower row shows whether both lanes chose the same token.",
  draw(panel) {
    const { store } = panel.inspector;
    if (store.started.length < 2) return panel.say("Only one lane was run, so there is no comparison.");
    compareWords(panel, "aligned", "ds-room ds-wide", ["The lanes above are aligned " + ALIGNED[transport.mode] + ". The replay bar changes the alignment."]);
    compareWords(panel, "parting", "ds-parting ds-wide", partingLines(panel, store));
    compareStrip(panel, store);
    compareTable(panel, store);
  },
};

function compareWords(panel, name, style, lines) {
  const node = panel.block(name, "div", style);
  const key = lines.join("\n");
  if (node.dataset.key === key) return;
  node.dataset.key = key;
  node.replaceChildren(...lines.map((line) => make("p", "", line)));
}

function parting(store) {
  const { a, b } = store.lanes;
  const ends = Math.max(a.firstEnd(a.rows.length), b.firstEnd(b.rows.length));
  for (let i = 0; i < Math.min(a.at.length, b.at.length); i++) {
    if (i > ends) return null;
    if (a.at[i] && b.at[i] && a.at[i].id !== b.at[i].id) return i;
  }
  return null;
}

function partingLines(panel, store) {
  const key = [panel.inspector.key, store.state, ...Object.keys(panel.inspector.loaded)].join();
  if (panel.partingKey !== key) panel.parting = partingWords(panel, store, parting(store));
  panel.partingKey = key;
  return panel.parting;
}

function partingWords(panel, store, place) {
  if (place === null) return ["The lanes do not differ: every answer token before the end that both lanes committed is the same."];
  const { a, b } = store.lanes;
  const choices = [a, b].map((lane) => {
    const { id, row, sure, fixed } = lane.at[place];
    const when = fixed || row < 0 ? " was given " : " committed ";
    const at = fixed || row < 0 ? "" : " at step " + (row + 1);
    return lane.name.toUpperCase() + when + quoted(lane.pieces.get(id)) + at + (sure === null ? "" : " (confidence " + sure.toFixed(3) + ")");
  });
  const lines = ["The lanes first differ at answer token " + (place + 1) + ": " + choices.join(", ") + "."];
  lines.push(partingCause(panel, store, place));
  for (const lane of [a, b]) lines.push(...partingLane(panel, lane, place));
  return lines;
}

function knownBefore(lane, place) {
  const row = lane.at[place].row;
  return lane.at.map((token) => (token && token.row < row ? token.id : null));
}

function partingCause(panel, store, place) {
  const [mine, theirs] = [store.lanes.a, store.lanes.b].map((lane) => knownBefore(lane, place));
  const [m, n] = [mine, theirs].map((ids) => ids.filter((id) => id !== null).length);
  const other = mine.some((id, i) => id !== null && theirs[i] !== null && theirs[i] !== id);
  const same = mine.every((id, i) => id === theirs[i]);
  const spared = ["a", "b"].filter((name) => reusedBefore(panel.inspector.frames[name], store.lanes[name].at[place].row));
  const reused = spared.length ? "values reused by lane " + spared.map((name) => name.toUpperCase()).join(" and ") : "";
  const recorded = ["a", "b"].every((name) => panel.inspector.frames[name]?.plan.shape[0]);
  const canvas = same
    ? "Both lanes had the same canvas at this choice"
    : "The canvases of the lanes differed at this choice: " + m + " answer tokens were known in A, " + n + " in B" + (other ? ", and some of these already differed after this token" : "");
  if (!recorded) return canvas + ". Press Record to see how the caches treated this row.";
  if (same) return canvas + ", so the difference comes from " + (reused || "the unmasker, because no value had been reused before") + ".";
  return canvas + (reused ? "; there were also " + reused : ", and no value had been reused before") + ".";
}

function rowOf(frame, place) {
  return frame.prompt + place;
}

function reusedBefore(frame, last) {
  if (!frame?.plan.shape[0]) return false;
  const wide = frame.plan.shape[3];
  const spare = (wide * 8 - frame.positions) & 7;
  const bytes = Math.min(last + 1, frame.steps) * frame.layers * 4 * wide;
  for (let i = 0; i < bytes; i++) {
    const whole = (i + 1) % wide ? 255 : (255 << spare) & 255;
    if ((frame.plan.values[i] & whole) !== whole) return true;
  }
  return false;
}

function rowCounts(frame, last, position) {
  const done = [0, 0, 0, 0];
  const steps = Math.min(last + 1, frame.steps);
  for (let s = 0; s < steps; s++) {
    for (let l = 0; l < frame.layers; l++) for (let i = 0; i < 4; i++) done[i] += bit(frame.plan, position, s, l, i);
  }
  return { done, all: steps * frame.layers };
}

function partingLane(panel, lane, place) {
  const frame = panel.inspector.frames[lane.name];
  const row = lane.at[place].row;
  if (!frame || row < 0) return [];
  const [lines, name] = [[], lane.name.toUpperCase()];
  const data = panel.inspector.given(lane.name, "candidates");
  const found = data && !data.missing ? candidateRow(data, frame, row, rowOf(frame, place)) : -1;
  if (found >= 0) {
    const best = candidateList(data, found).map(({ piece, prob }) => quoted(piece) + " " + prob.toFixed(3));
    lines.push("Candidates of lane " + name + " for this token at step " + (row + 1) + ": " + best.join(", ") + ".");
  }
  if (frame.plan.shape[0]) {
    const { done, all } = rowCounts(frame, row, rowOf(frame, place));
    const shares = ["K", "V", "attention", "feed-forward"].map((site, i) => site + " " + done[i]);
    const last = done.every((count) => count === all) ? "nothing was reused" : "the rest was reused";
    lines.push("Lane " + name + " had recomputed this row until then, of " + all + " layer-steps: " + shares.join(", ") + "; " + last + ".");
  }
  return lines;
}

function compareStrip(panel, store) {
  const { a, b } = store.lanes;
  const { inspector, cursor } = panel;
  const cell = (x, y) => {
    const [mine, theirs] = [a.at[x], b.at[x]];
    if (!mine || !theirs) return null;
    if (y) return { same: mine.id === theirs.id };
    return mine.row < 0 || theirs.row < 0 ? null : { later: theirs.row - mine.row };
  };
  const prompt = panel.frame.prompt;
  const figure = panel.figure("compare-strip");
  figure.root.classList.add("ds-wide");
  figure.show({
    title: "Lane B compared with lane A: when each answer token was unmasked, and whether it is the same",
    key: "strip" + inspector.key,
    x: { ...panel.answers(), count: Math.min(a.at.length, b.at.length) },
    y: { name: "", count: 2, tick: (i) => ["step", "token"][i] },
    value: cell,
    colour: (v) => (v.later === undefined ? (v.same ? SAME : DIFFERENT) : puor(0.5 + v.later / (2 * STEP_RANGE))),
    glyph: (v) => (v.later === undefined ? (v.same ? "=" : "≠") : ["◂", "0", "▸"][Math.sign(v.later) + 1]),
    over: (x, y) => cell(x, y).later < 0,
    under: (x, y) => cell(x, y).later > 0,
    legend: {
      kind: "scale", name: "B's step − A's", colour: puor,
      ticks: [[0, "≤ −64"], [0.25, "−32"], [0.5, "0"], [0.75, "32"], [1, "≥ 64"]],
      items: [[puor(0.3), "earlier in B", "◂", "over"], [puor(0.7), "later in B", "▸", "under"], [SAME, "same token", "="], [DIFFERENT, "different token", "≠"]],
    },
    blank: "not committed in both",
    unit: "steps later in B; same",
    plain: (v) => (v.later === undefined ? (v.same ? "same" : "different") : v.later),
    words: (x) => stripWords(a, b, x),
    pick: (x, _, pin) => panel.pick({ position: prompt + x }, pin),
    leave: () => panel.pick(null, false),
    at: { x: cursor.position === null || cursor.position < prompt ? null : cursor.position - prompt, y: null },
    height: 120,
  });
}

function stripWords(a, b, x) {
  const parts = [a, b].map((lane) => {
    const token = lane.at[x];
    if (!token) return lane.name.toUpperCase() + " not committed";
    return lane.name.toUpperCase() + " " + quoted(lane.pieces.get(token.id)) + (token.row < 0 ? " (given)" : " at step " + (token.row + 1));
  });
  return "Answer token " + (x + 1) + ": " + parts.join(", ");
}

function compareTable(panel, store) {
  const { a, b } = store.lanes;
  const node = panel.block("numbers", "div", "ds-scroll ds-wide");
  const key = panel.inspector.key + store.state;
  if (node.dataset.key === key) return;
  node.dataset.key = key;
  const rows = [["Measure", "A: " + a.start.title, "B: " + b.start.title, "B / A"]];
  const guided = [a, b].some((lane) => (lane.end?.metrics.guider_forwards ?? null) !== null);
  for (const [name, label, kind = ""] of RATIOS) {
    if (kind.startsWith("guided") && !guided) continue;
    const hidden = kind.endsWith("timed") && !store.timed;
    const scale = kind.endsWith("share") ? 100 : 1;
    const found = [a, b].map((lane) => (hidden ? null : lane.end?.metrics[name] ?? null));
    const ratio = found[0] && found[1] !== null ? (found[1] / found[0]).toPrecision(3) + "×" : "–";
    rows.push([label, ...found.map((value) => number(value === null ? null : value * scale)), ratio]);
  }
  rows.push(...compareAnswers(store));
  const table = make("table", "ds-numbers");
  const seen = new Set();
  rows.forEach((row, i) => {
    const line = make("tr");
    row.forEach((text, j) => {
      const cell = make(i && j ? "td" : "th");
      cell.append(...(i && !j ? termNodes(text, seen) : [text]));
      line.append(cell);
    });
    table.append(line);
  });
  const from = store.parent ? "Lane B continues from a step of lane A. Its numbers cover only the steps after the branch. " : "";
  const times = store.timed ? "" : "Recorded runs show no times.";
  node.replaceChildren(table, make("p", "ds-room", from + times));
  Object.assign(node, { tabIndex: 0, role: "region", ariaLabel: "Numbers of both lanes" });
}

function compareAnswers(store) {
  const found = store.summary;
  if (!found || found.numbers.length < 2) return [];
  const agreement = found.agreement === null ? "–" : number(100 * found.agreement, 1) + " %";
  const verdicts = found.right.map((right, i) => (found.numbers[i] ?? "none") + (right === null ? "" : right ? " ✓ right" : " ✗ wrong"));
  const [textA, textB] = found.text_forwards;
  const textRatio = textA && textB ? (textB / textA).toPrecision(3) + "×" : "–";
  return [
    ["End-of-text rule", ...found.end_of_text.map((rule) => rule || "–"), ""],
    ["Forwards until the text is complete", number(textA), number(textB), textRatio],
    ["Tokens before the end that agree", "", agreement, ""],
    ["Number answered", ...verdicts, ""],
  ];
}
