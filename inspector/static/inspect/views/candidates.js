const CANDIDATE_ROWS = new WeakMap();
const SURE_SCALE = {
  kind: "scale",
  name: "probability of the most likely token",
  colour: cividis,
  ticks: [[0, "0"], [0.25, "0.25"], [0.5, "0.5"], [0.75, "0.75"], [1, "1"]],
};

function candidateRow(data, frame, step, position) {
  if (!CANDIDATE_ROWS.has(data)) {
    const rows = new Map();
    data.step.values.forEach((s, i) => rows.set(s * frame.positions + data.position.values[i], i));
    CANDIDATE_ROWS.set(data, rows);
  }
  return CANDIDATE_ROWS.get(data).get(step * frame.positions + position) ?? -1;
}

function candidateList(data, row) {
  return Array.from({ length: data.ids.shape[1] }, (_, rank) => {
    const id = at(data.ids, row, rank);
    return { id, piece: data.pieces[id], prob: at(data.probs, row, rank), chosen: data.chosen.values[row] === rank };
  });
}

INSPECT_VIEWS.candidates = {
  title: "Candidates",
  level: "steps",
  source: "candidates",
  about:
    "The answer tokens that each step could have committed, with the model's most likely tokens and their probabilities. " +
    "Orange dots mark committed tokens. Choose a cell to see its list, and to branch: to continue from before that step with another token, or with a token masked again. The run shown here does not change.",
  controls: [
    {
      name: "settings",
      label: "Branch with",
      value: "parent",
      options: [["parent", "this run's settings"], ["form", "lane B's settings in the form"]],
    },
  ],
  draw(panel, data) {
    const { frame, cursor } = panel;
    const step = Math.min(cursor.step, frame.steps - 1);
    const place = cursor.position === null ? null : cursor.position - frame.prompt;
    candidateHeat(panel, data, step, place !== null && place >= 0 ? place : null);
    const box = panel.block("list", "div", "ds-branch");
    const key = [panel.inspector.key, cursor.lane, step, place, panel.inspector.store.state].join();
    if (box.dataset.key === key) return;
    box.dataset.key = key;
    box.replaceChildren(...candidateNodes(panel, data, step, place));
  },
};

function candidateHeat(panel, data, step, place) {
  const { frame, cursor, inspector } = panel;
  const row = (x, y) => candidateRow(data, frame, y, frame.prompt + x);
  const dots = [];
  for (let x = 0; x < frame.positions - frame.prompt; x++) {
    const y = frame.revealed.values[frame.prompt + x];
    if (y >= 0) dots.push([x, y]);
  }
  panel.figure("candidates").show({
    title: "Probability of the most likely token: step by answer token",
    key: "candidates" + cursor.lane + inspector.key,
    x: panel.answers(),
    y: { name: "step", count: frame.steps },
    value: (x, y) => (row(x, y) < 0 ? null : at(data.probs, row(x, y), 0)),
    colour: cividis,
    legend: SURE_SCALE,
    blank: "not a candidate",
    unit: "probability",
    words: (x, y) => candidateWords(panel, data, x, y),
    pick: (x, y, pin) => panel.pick({ position: frame.prompt + x, step: y }, pin),
    leave: () => panel.pick(null, false),
    at: { x: place, y: step },
    dots,
    dotName: "committed",
    height: 360,
  });
}

function candidateWords(panel, data, x, step) {
  const { frame } = panel;
  const row = candidateRow(data, frame, step, frame.prompt + x);
  const head = "Answer token " + (x + 1) + ", step " + (step + 1) + ": ";
  if (row < 0) return head + "not a candidate, " + panel.text(frame.prompt + x, step);
  const best = candidateList(data, row).map(({ piece, prob, chosen }) => quoted(piece) + " " + prob.toFixed(3) + (chosen ? " (committed)" : ""));
  return head + best.join(", ");
}

function candidateNodes(panel, data, step, place) {
  const { frame } = panel;
  const where = "before step " + (step + 1);
  const count = data.step.values.reduce((sum, s) => sum + (s === step), 0);
  const on = branchKey(panel, "Branch from " + where, { step, edits: [] });
  const head = make("p", "", "Step " + (step + 1) + ": " + plural(count, "candidate") + ". ");
  if (place === null || place < 0) {
    return [head, make("p", "ds-room", "Choose a cell to see its tokens."), on];
  }
  const row = candidateRow(data, frame, step, frame.prompt + place);
  const known = panel.text(frame.prompt + place, step);
  const name = "Answer token " + (place + 1) + ", " + where;
  if (row < 0) {
    const text = name + ": " + (known === "mask" ? "masked, but not a candidate in this step." : known + " is already known.");
    const edit = known === "mask" ? [] : [branchKey(panel, "Mask this token again and branch", { step, edits: [[place, -1]] })];
    return [head, make("p", "", text), ...edit, on];
  }
  return [head, make("p", "", name + ":"), candidateTable(panel, data, row, step, place), on];
}

function candidateTable(panel, data, row, step, place) {
  const table = make("table", "ds-candidates");
  const top = make("tr");
  for (const text of ["Token", "Id", "Probability", ""]) top.append(make("th", "", text));
  table.append(top);
  for (const { id, piece, prob, chosen } of candidateList(data, row)) {
    const line = make("tr");
    line.append(make("td", "", quoted(piece) + (chosen ? " ✓ committed" : "")), make("td", "", String(id)));
    const share = make("td", "", prob.toFixed(4));
    share.style.backgroundImage = "linear-gradient(90deg, var(--ds-settled) " + 100 * prob + "%, transparent 0)";
    const key = make("td");
    key.append(branchKey(panel, "Commit this token and branch", { step, edits: [[place, id]] }));
    line.append(share, key);
    table.append(line);
  }
  return table;
}

function branchKey(panel, text, edit) {
  const { inspector, cursor } = panel;
  const key = make("button", "ds-play", text);
  key.type = "button";
  key.dataset.branch = edit.edits.length ? edit.edits[0].join() : "on";
  key.disabled = inspector.store.busy;
  const lane = cursor.lane;
  key.addEventListener("click", () => ask("branch", { run: inspector.store.run, lane, settings: panel.values.settings, ...edit }));
  return key;
}
