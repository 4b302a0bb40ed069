const METHODS = {
  none: "plain decoding", prefix: "the prefix cache", dual: "the dual cache", freecache: "FreeCache",
  dllm_cache: "dLLM-Cache", spa_cache: "SPA-Cache", dare_kv: "DARE-KV", dare_o: "DARE-O",
  d2_cache: "d2Cache", dkv_cache: "dKV-Cache",
};
const MOVED_BY = { v_cos: ["v", "its V"], k_cos: ["k", "its K"], v_l2: [null, "its V"], random: [null, ""] };

class Why {
  constructor(frame, rules, drift, { step, layer, position }) {
    Object.assign(this, { frame, rules, drift, step, layer, position });
    this.bits = [0, 1, 2, 3].map((site) => this.done(step, site));
    this.all = this.bits.every(Boolean);
    this.any = this.bits.some(Boolean);
    this.first = frame.prompt - rules.shift;
    const open = frame.prompt + frame.block * frame.blocks.values[step];
    this.open = { from: open - rules.shift, to: open + frame.block };
    this.full = frame.kinds.values[step] === 0;
  }

  done(step, site, position = this.position) {
    return bit(this.frame.plan, position, step, this.layer, site);
  }

  get region() {
    if (this.position < this.first) return 0;
    return this.position >= this.open.from && this.position < this.open.to ? 1 : 2;
  }

  seek(from, by, holds) {
    for (let step = from; step >= 0 && step < this.frame.steps; step += by) if (holds(step)) return step;
    return -1;
  }

  around(holds) {
    const before = this.seek(this.step - 1, -1, holds);
    const after = this.seek(this.step + 1, 1, holds);
    const last = before < 0 ? "not computed before" : "last at step " + (before + 1);
    return last + ", " + (after < 0 ? "not again in this run" : "next at step " + (after + 1));
  }

  own() {
    return this.around((step) => [0, 1, 2, 3].some((site) => this.done(step, site)));
  }

  share(from, site) {
    let count = 0;
    for (let x = from; x < this.frame.positions; x++) count += this.done(this.step, site, x);
    const rows = this.frame.positions - from;
    return count + " of " + rows + " rows (" + Math.round((100 * count) / rows) + " %)";
  }

  moved(name) {
    const code = this.drift && name ? at(this.drift.drift, this.step, this.layer, this.drift.quantities.indexOf(name), this.position) : NO_DATA;
    return code === NO_DATA ? "" : DRIFT[code] < 1e-4 ? "less than 0.0001" : DRIFT[code].toPrecision(2);
  }

  due(region) {
    return (step) => Boolean(at(this.rules.due, step, region));
  }

  every(region) {
    const period = this.rules.periods[region];
    return period ? (period === 1 ? "at every step" : "every " + period + " steps") : "at long intervals";
  }

  names(sites) {
    const words = ["K", "V", "attention", "feed-forward"].filter((_, i) => sites.includes(i));
    return words.length < 2 ? words.join("") : words.slice(0, -1).join(", ") + " and " + words[words.length - 1];
  }

  head() {
    if (this.all) return "Recomputed";
    if (!this.any) return "Not recomputed";
    const kept = [0, 1, 2, 3].filter((i) => !this.bits[i]);
    const names = this.names(kept);
    return names[0].toUpperCase() + names.slice(1) + " reused";
  }

  sentence() {
    const [window, reuse] = this.rules.parts;
    const rule = reuse && (this.any || !(window in WHY_RULES)) ? reuse : window;
    const said = (WHY_RULES[rule] || whyOther)(this, METHODS[rule] || rule);
    return this.head() + ": " + said + ".";
  }
}

function whyBlock(cell, name) {
  const { frame, step, position, open } = cell;
  if (cell.full) {
    const fresh = step === 0 || frame.blocks.values[step] !== frame.blocks.values[step - 1];
    const cause = fresh ? "block " + (frame.blocks.values[step] + 1) + " starts at this step" : "a refresh is due at this step";
    return cause + ", and " + name + " then computes every row";
  }
  if (cell.any) {
    const more = position >= open.to ? "a later block, and those are" : "the current block, which is";
    return "it stands in " + more + " computed in every step";
  }
  const kept = cell.rules.parts[0] === "dual" ? "everything outside the current block" : "what stands before the current block";
  return name + " keeps " + kept + "; " + cell.own();
}

function whyFree(cell, name) {
  if (cell.step === 0) return name + " computes the whole canvas once, in the first step";
  if (cell.any) return "it is not yet frozen: rows from the block of the first mask on are computed in every step";
  const again = cell.seek(cell.step + 1, 1, (step) => cell.done(step, 0)) >= 0;
  if (again) return "it stands outside the window around the last token revealed; " + cell.own();
  return name + " has frozen it, for it stands before the block of the first mask; " + cell.own();
}

function whyClock(cell, region, name, what) {
  if (cell.step === 0) return "the first step computes every row";
  const due = cell.due(region);
  if (due(cell.step)) return name + " renews " + what + " " + cell.every(region) + ", and this step is one of them; " + cell.around(due);
  return name + " renews " + what + " " + cell.every(region) + "; " + cell.around(due);
}

function whyDllm(cell, name) {
  const { rules, step, region } = cell;
  if (region === 0) {
    const dense = cell.all && !cell.due(0)(step);
    return dense ? "layer 1 is computed for every row in every step" : whyClock(cell, 0, name, "the prompt");
  }
  if (cell.step === 0 || cell.due(1)(step)) return whyClock(cell, 1, name, "the answer");
  const tail = "; the whole answer is renewed " + cell.every(1) + ", " + cell.around(cell.due(1));
  if (cell.layer === 0 && cell.all) return "layer 1 is computed for every row in every step" + tail;
  if (!cell.any) return "between renewals nothing of the answer is computed" + tail;
  const [quantity, what] = MOVED_BY[rules.knobs["dllm_cache.selector"] || "v_cos"] || MOVED_BY.v_cos;
  const moved = cell.moved(quantity);
  const chosen = cell.share(cell.first, 3);
  if (!what) return (cell.all ? "drawn at random, with " : "not drawn at random among ") + chosen + tail;
  const far = what + (moved ? " had moved by " + moved : " had moved") + ", ";
  return far + (cell.all ? "" : "not ") + "among the " + chosen + " of the answer that moved most in layer " + (cell.layer + 1) + tail;
}

function whySpa(cell, name) {
  const { rules, step, region } = cell;
  const dense = rules.knobs["spa_cache.kv_mode"] !== "sparse";
  if (cell.full) return step === 0 ? "the first step computes every row" : whyClock(cell, 0, name, "every row");
  if (region === 0 && !cell.any && dense) return whyClock(cell, 0, name, "the prompt");
  if (region > 0 && cell.due(1)(step)) return whyClock(cell, 1, name, "the answer");
  if (cell.layer === 0 && cell.all && dense) return "layer 1 is computed for every row that enters the step";
  const value = (rules.knobs["spa_cache.identifier"] || "value") === "value";
  const moved = cell.moved("v");
  const chosen = cell.share(dense ? cell.first : 0, 3);
  const proxy = value ? "the low-rank image of its V" : "its " + rules.knobs["spa_cache.identifier"].replace("_", " ");
  const far = moved ? " (V itself by " + moved + ")" : "";
  const among = "among the " + chosen + " whose image moved most in layer " + (cell.layer + 1);
  const budget = rules.budget?.[cell.layer];
  const limit = budget ? ", the layer's budget being " + (100 * budget).toFixed(1) + " %" : "";
  return proxy + " was " + (cell.bits[3] ? "" : "not ") + among + far + limit;
}

function whyDare(cell, name) {
  const limit = cell.rules.threshold?.[cell.layer];
  if (cell.step === 0) return "the first step computes every row";
  if (cell.full) return name + " reuses nothing in this step: it is due, or the cache beneath begins anew";
  const moved = cell.moved("q0");
  const shown = limit > 0 ? limit.toPrecision(2) : "";
  const query = "the query of head 0 moved " + (moved ? "by " + moved + ", " : "");
  if (!cell.all) return query + "no more than this layer's threshold" + (shown ? " of " + shown : "");
  if (cell.rules.threshold && !shown) return name + " reuses nothing in this layer";
  return query + "more than this layer's threshold" + (shown ? " of " + shown : "");
}

function whyOther(cell, name) {
  if (cell.full) return name + " computes every row in this step";
  const rows = plural(cell.frame.rows.values[cell.step], "row");
  return (cell.any ? "one of " : "not one of ") + rows + " that " + name + " chose for this step; " + cell.own();
}

const WHY_RULES = {
  none: () => "plain decoding computes every row in every step",
  prefix: whyBlock, dual: whyBlock, freecache: whyFree, dllm_cache: whyDllm, spa_cache: whySpa,
  dare_kv: whyDare, dare_o: whyDare, d2_cache: whyOther, dkv_cache: whyOther,
};
