const STATES = {
  empty: "There is no recorded example. Press Run to start a race.",
  example: "Recorded example",
  imported: "Imported traces: nothing is computed, the times are those in the file",
  queued: "Waiting for a place …",
  starting: "Starting …",
  running: "Running: the lane with the smaller time takes the next step",
  lock: "Waiting for another run to finish …",
  gpu: "Requesting a shared GPU …",
  fetching: "Downloading the model …",
  loading: "Loading the model …",
  warmup: "Warming up (not timed) …",
  recording: "Recording: the same settings are run again; the times are not used",
  paused: "Paused: Step takes one step, Resume continues",
  stopped: "Stopped",
  failed: "Failed",
  memory: "Out of memory: all memory was freed",
  done: "Finished",
};
const ROWS = [
  ["forwards", "Forwards"], ["nfe", "Steps (NFE)"], ["full_steps", "Steps that compute all rows"],
  ["partial_steps", "Steps that compute some rows"], ["total_ms", "Engine time, ms"],
  ["forward_ms", "… in the network, ms"], ["decide_ms", "… deciding, ms"],
  ["ms_per_step", "ms per step"], ["tokens", "Tokens before the end"],
  ["text_nfe", "Steps until the text is complete"],
  ["text_ms", "Engine time until the text is complete, ms"],
  ["positions", "Positions decoded"], ["tokens_per_s", "Tokens per second"],
  ["positions_per_s", "Positions per second"], ["rows", "Rows computed"],
  ["rows_plain", "Rows without a cache"], ["recomputed", "Share of token-layers recomputed"],
  ["gflops", "GFLOPs"], ["gflops_per_position", "GFLOPs per position"],
  ["cache_bytes", "Cache, bytes"], ["peak_memory_bytes", "Peak memory, bytes"],
];
const GUIDED_ROWS = [
  ["guider_ms", "Guider, ms (part of deciding)"], ["guider_prefill_ms", "… of which prefill, ms"],
  ["gflops_guider", "Guider, GFLOPs"], ["guider_forwards", "Guider, forwards"], ["guider_tokens", "Guider, tokens processed"],
  ["tokens_per_nfe", "Tokens before the end per step"], ["tokens_per_guider_forward", "… per guider forward"],
  ["accepted", "Tokens accepted per step"], ["fallback_rate", "Share of steps that used the fallback"],
  ["guider_weight_bytes", "Guider, weights in bytes"], ["guider_cache_bytes", "Guider, cache in bytes"],
];

function headline(store, frames) {
  if ((store.live && !store.pending) || store.state === "stopped") {
    const shares = store.started.map((lane) => {
      const left = lane.masksLeft(frames[lane.name]);
      return lane.name.toUpperCase() + " " + (lane.at.length - left) + " of " + lane.at.length;
    });
    return shares.join(" · ");
  }
  const found = store.summary;
  if (!found) return "";
  const rules = unequalRules(found);
  if (found.speedup === null) return rules;
  const text = found.text_speedup ? "; up to the end of the text " + ratio(found.text_speedup) : "";
  return "Lane B is " + ratio(found.speedup) + text + (rules && ". " + rules);
}

function ratio(speedup) {
  const times = speedup >= 1 ? speedup : 1 / speedup;
  return times.toFixed(times < 10 ? 1 : 0) + "× " + (speedup >= 1 ? "faster" : "slower");
}

function unequalRules(found) {
  const [a, b] = found.end_of_text;
  return !a || !b || a === b ? "" : "Unequal end-of-text rules: A " + a + ", B " + b;
}

function chips(store) {
  const found = store.summary;
  if (!found || found.numbers.length < 2 || found.same_answer === null) return [];
  const fair = found.speedup !== null;
  const out = fair ? [number(found.forwards[1]) + " forwards instead of " + number(found.forwards[0])] : [];
  const [textA, textB] = found.text_forwards;
  if (fair && textA && textB) out.push(textB + " instead of " + textA + " up to the end of the text");
  out.push(verdict(found));
  if (found.same_text) out.push("every token agrees");
  else if (found.agreement !== null) {
    const share = Math.floor(found.agreement * 100) + " % of tokens agree";
    out.push(share + ", first difference at token " + (found.first_divergence + 1));
  }
  return out.filter(Boolean);
}

function verdict(found) {
  const [a, b] = found.numbers;
  const mark = (i) => (found.right[i] === null ? "" : found.right[i] ? " ✓" : " ✗");
  const listed = found.expected !== null && !/^\d+$/.test(found.expected);
  if (listed) return (found.same_answer ? "same answer" : "answers differ") + ": A" + mark(0) + ", B" + mark(1);
  const truth = found.expected === null ? "" : " (right: " + found.expected + ")";
  if (found.same_answer && a !== null) {
    if (found.right[0] === null) return "same answer: " + a;
    return "same answer: " + a + (found.right[0] ? " ✓ right" : " ✗ wrong" + truth);
  }
  if (found.same_answer) return "same answer";
  if (a === null && b === null) return "no number in either answer" + truth;
  const shown = (value) => (value === null ? "none" : value);
  return "answers differ: A " + shown(a) + mark(0) + ", B " + shown(b) + mark(1) + truth;
}

function stats(lane, frame, timed) {
  const spent = timed ? lane.clock[frame] : NaN;
  const rate = spent ? (lane.tokensBeforeEnd(frame) / spent) * 1000 : null;
  return [
    ["Masks left", number(lane.masksLeft(frame))],
    ["Forwards", number(lane.forwards[frame])],
    ["Time", timed ? duration(spent) : "–"],
    ["Per step", frame && timed ? (spent / frame).toFixed(1) + " ms" : "–"],
    ["Tokens/s", number(rate, rate >= 100 ? 0 : 1)],
  ];
}

function pill(lane, frame) {
  if (lane.end && frame === lane.rows.length) {
    const when = lane.rows.length;
    return { done: "done", stopped: "stopped at step " + when, failed: "failed", memory: "out of memory" }[lane.end.reason] || "";
  }
  if (!lane.start) return "";
  const row = lane.rows[frame - 1];
  const kind = row ? ["full", "partial", "reuse", "frozen"][row.kind] + " step" : "not started";
  return row ? "step " + frame + " · " + kind + " · " + plural(row.rows, "row") : kind;
}

const CLOCKED = ["total_ms", "text_ms", "forward_ms", "decide_ms", "ms_per_step", "tokens_per_s", "positions_per_s", "guider_ms", "guider_prefill_ms"];

function table(target, store) {
  const head = make("tr");
  head.append(make("th", "", "Measure"));
  const lanes = store.started;
  for (const lane of lanes) head.append(make("th", "", lane.name.toUpperCase() + ": " + lane.start.title));
  const guided = lanes.some((lane) => (lane.end?.metrics.guider_forwards ?? null) !== null);
  const seen = new Set();
  const rows = [...ROWS, ...(guided ? GUIDED_ROWS : [])].filter(([name]) => store.timed || !CLOCKED.includes(name)).map(([name, label]) => {
    const row = make("tr");
    const head = make("th");
    head.append(...termNodes(label, seen));
    row.append(head);
    for (const lane of lanes) row.append(make("td", "", number(lane.end?.metrics[name])));
    return row;
  });
  target.replaceChildren(head, ...rows);
}

function answer(target, lane, frame) {
  const parts = lane.start ? lane.text(frame) : [];
  const nodes = [];
  let hidden = 0;
  const flush = () => {
    if (hidden) nodes.push(make("span", "ds-gap", "▒".repeat(Math.min(hidden, 12))));
    hidden = 0;
  };
  for (const part of parts) {
    if (part === null) {
      hidden++;
      continue;
    }
    flush();
    nodes.push(document.createTextNode(nodes.length ? part : part.trimStart()));
  }
  flush();
  target.replaceChildren(...nodes);
}

function promptView(target, store) {
  const lane = store.started[0];
  if (!lane) return;
  const cells = lane.start.prompt.map((id) => {
    const piece = lane.pieces.get(id);
    const cell = make("span", "ds-fixed", piece === undefined ? "?" : visible(typeof piece === "string" ? piece : cellText(piece)));
    cell.title = "id " + id;
    return cell;
  });
  target.replaceChildren(...cells);
}

function recordWords(store, frames) {
  const levels = store.started.map((lane) => frames[lane.name]?.level);
  const found = levels.filter(Boolean)[0];
  const recorded = { layers: "Recorded: plans and drift of every layer.", probe: "Recorded with probe: plans, drift, and the exact values at chosen steps." }[found];
  const kept = recorded || "Not recorded: this run has only the tokens and rows of each step.";
  if (props.offline) return kept;
  return kept + " Record runs the same settings again, without timing; Record and probe adds up to 8 exact forwards per lane.";
}
