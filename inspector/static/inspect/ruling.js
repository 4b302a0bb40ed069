const RULING_ROWS = new WeakMap();
const RANK_WORDS = ["first", "second", "third", "fourth", "fifth"];
const RULING_ENDS = {
  accepted: "Accepted",
  agreed: "Not committed in this step",
  refused: "Not accepted",
  mismatch: "Not accepted, the first mismatch",
  fallback: "Committed by the fallback",
  stop: "Accepted: the end of the text",
};
const RULING_COUNTS = {
  accepted: "accepted and committed",
  mismatch: "the first token that the guider did not accept",
  fallback: "committed by the fallback, because no token was accepted",
  stop: "the end of the text was committed, and the run ended",
  filled: "filled in after the end of the text",
  untold: "drafted after the first mismatch; its verdict was not recorded",
};

function rulingRow(data, frame, step, position) {
  if (!RULING_ROWS.has(data)) {
    const rows = new Map();
    data.draft_step.values.forEach((s, i) => rows.set(s * frame.positions + data.draft_position.values[i], i));
    RULING_ROWS.set(data, rows);
  }
  return RULING_ROWS.get(data).get(step * frame.positions + position) ?? -1;
}

function chance(p) {
  return p > 0 && p < 0.0005 ? "below 0.001" : p.toFixed(3);
}

function rankWords(rank) {
  return RANK_WORDS[rank] || "sixth or lower";
}

class Ruling {
  constructor(data, frame, stops, step, position) {
    Object.assign(this, { data, frame, stops, step, position });
    this.place = position - frame.prompt;
    const code = this.place < 0 ? NO_DATA : at(data.cells, step, this.place);
    this.name = code === NO_DATA ? "" : data.names[code];
    this.row = rulingRow(data, frame, step, position);
  }

  get forced() {
    return this.name === "stop" && this.data.accepted.values[this.step] === 0;
  }

  get outcome() {
    return this.forced ? "Committed by the fallback, and it ends the text" : RULING_ENDS[this.name];
  }

  get head() {
    return "Step " + (this.step + 1) + ", answer token " + (this.place + 1) + ": ";
  }

  sentence() {
    if (this.place < 0) return "The prompt is not drafted: choose an answer token.";
    if (this.row < 0) return this.head + this.untold();
    return this.head + this.both() + " " + this.verdict();
  }

  short() {
    if (this.row < 0) return this.head + this.untold();
    const { data, row } = this;
    const p_g = data.draft_p_g.values[row];
    const said = Number.isNaN(p_g) ? "unknown" : chance(p_g);
    return this.head + this.drafted + ", diffusion model " + chance(data.draft_p_f.values[row]) + ", guider " + said + ": " + this.outcome.toLowerCase();
  }

  untold() {
    if (RULING_COUNTS[this.name]) return RULING_COUNTS[this.name] + ".";
    const { revealed, before } = this.frame;
    const known = before.values[this.position] || (revealed.values[this.position] >= 0 && revealed.values[this.position] < this.step);
    return known ? "known before this step, so it was not drafted." : "not drafted in this step.";
  }

  get drafted() {
    const id = this.data.draft_id.values[this.row];
    return this.stops.includes(id) ? "the end of the text" : quoted(this.data.pieces[id]);
  }

  piece(id) {
    const piece = this.data.guider_pieces[id];
    return piece === undefined ? "the end of the text" : quoted(piece);
  }

  get tokens() {
    const [first, last] = [at(this.data.span, this.row, 0), at(this.data.span, this.row, 1)];
    return first < 0 ? [] : Array.from({ length: last - first + 1 }, (_, i) => this.token(first + i));
  }

  token(i) {
    const read = (name) => this.data["guider_" + name].values[i];
    return {
      id: read("id"), p: read("p"), ok: read("ok") === 1, rank: read("rank"), top: read("top"), best: read("top_p"),
    };
  }

  both() {
    const { data, row, tokens } = this;
    const drafts = "the diffusion model drafts " + this.drafted + " with probability " + chance(data.draft_p_f.values[row]);
    if (!tokens.length) return drafts + "; the guider's tokens do not reach it, so it was not checked.";
    const own = data.about.shared ? "" : " In the guider's tokens it is " + tokens.map(({ id, p }) => this.piece(id) + " " + chance(p)).join(", ") + ".";
    return drafts + "; " + this.guess(tokens) + "." + own;
  }

  guess(tokens) {
    const one = tokens.find(({ ok }) => !ok) || tokens[0];
    const whole = this.data.draft_p_g.values[this.row];
    const gives = Number.isNaN(whole) ? "" : "the guider gives it " + chance(whole);
    const part = tokens.length > 1 ? ", of which " + this.piece(one.id) : "";
    if (one.rank === 0) return (gives || "the guider") + part + (part || !gives ? " is its first choice" : ", its first choice");
    return gives + part + (part ? " is its " : ", its ") + rankWords(one.rank) + " choice after " + this.piece(one.top) + " with " + chance(one.best);
  }

  verdict() {
    const { tokens } = this;
    if (!tokens.length) return "";
    const ok = this.data.draft_ok.values[this.row] === 1;
    const judged = tokens.find((token) => !token.ok) || tokens[0];
    return this.outcome + ": " + this.reason(judged, ok) + this.after(ok) + ".";
  }

  reason({ p, ok, rank, best }, whole) {
    const { rule, k, tau } = this.data.rule;
    if (ok !== whole) return "the guider does not accept all of its tokens that spell it";
    const share = tau + " × its highest, " + chance(best);
    if (rule === "rel_dlm") return "the diffusion model's highest probability is " + (ok ? "" : "not ") + "more than " + share + " (rule rel_dlm, τ = " + tau + ")";
    if (rule === "top1") return "it is " + (ok ? "" : "not ") + "the guider's first choice (rule top1)";
    const likely = k === 1 ? "the first choice" : "one of its " + k + " first choices";
    if (rule === "topk") return "it is " + (ok ? "" : "not ") + likely + " (rule topk, k = " + k + ")";
    const name = " (rule rel, k = " + k + ", τ = " + tau + ")";
    if (ok) return "it is " + likely + ", and " + chance(p) + " is at least " + share + name;
    const far = rank >= k || p >= tau * best;
    return (far ? "it is not " + likely : chance(p) + " is less than " + share) + name;
  }

  after(ok) {
    const { name, data } = this;
    if (name === "fallback" || this.forced) return "; because no token was accepted, " + (data.rule.fallback === "ar" ? "the guider's" : "the diffusion model's") + " token was committed there (fallback " + data.rule.fallback + ")";
    if (name !== "agreed" && name !== "refused") return "";
    const first = this.mismatch();
    const where = first < 0 ? "" : ", answer token " + (first + 1);
    if (name === "agreed") return first < 0 ? "; it is beyond the number of tokens that a step may accept" : "; but an earlier token" + where + ", was the first mismatch";
    return "; an earlier token" + where + ", was the first mismatch";
  }

  mismatch() {
    const wide = this.data.cells.shape[1];
    for (let x = 0; x < wide; x++) {
      const code = at(this.data.cells, this.step, x);
      if (code !== NO_DATA && ["mismatch", "fallback"].includes(this.data.names[code])) return x;
    }
    return -1;
  }
}
