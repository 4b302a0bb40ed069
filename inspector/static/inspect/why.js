const WHY_SITES = ["k", "v", "attn", "ffn"];
const WHY_SITE_NAMES = ["K", "V", "attention", "feed-forward"];
const WHY_REGIONS = ["prompt", "block", "rest"];

class Why {
  constructor(frame, rules, drift, { step, layer, position }) {
    Object.assign(this, { frame, rules, drift, step, layer, position });
    this.computed = WHY_SITES.map((_, site) => this.done(step, site));
    const start = frame.prompt + frame.block * frame.blocks.values[step];
    this.answer = frame.prompt - rules.shift;
    this.block = { from: start - rules.shift, to: start + frame.block };
  }

  done(step, site, position = this.position) {
    return bit(this.frame.plan, position, step, this.layer, site);
  }

  doneAny(step, position = this.position) {
    return WHY_SITES.some((_, site) => this.done(step, site, position));
  }

  get region() {
    if (this.position < this.answer) return 0;
    return this.position >= this.block.from && this.position < this.block.to ? 1 : 2;
  }

  regionOf(name) {
    if (!name) return this.region;
    return name === "answer" ? 1 : WHY_REGIONS.indexOf(name);
  }

  refreshed(step, region) {
    return Boolean(at(this.rules.due, step, region));
  }

  fact(name) {
    const value = this.rules.facts?.[name]?.[this.layer];
    return typeof value === "number" ? value : null;
  }

  seek(from, by, holds) {
    for (let step = from; step >= 0 && step < this.frame.steps; step += by) if (holds(step)) return step;
    return -1;
  }

  times(holds) {
    const before = this.seek(this.step - 1, -1, holds);
    const after = this.seek(this.step + 1, 1, holds);
    const last = before < 0 ? "not computed before" : "last at step " + (before + 1);
    return last + ", " + (after < 0 ? "not again in this run" : "next at step " + (after + 1));
  }

  share(site, area) {
    const from = area === "answer" ? this.answer : 0;
    const rows = this.frame.positions - from;
    let count = 0;
    for (let x = from; x < this.frame.positions; x++) {
      count += site ? this.done(this.step, WHY_SITES.indexOf(site), x) : Number(this.doneAny(this.step, x));
    }
    return count + " of " + plural(rows, "row") + " (" + Math.round((100 * count) / rows) + " %)";
  }

  drifted(quantity) {
    const code = this.drift ? at(this.drift.drift, this.step, this.layer, this.drift.quantities.indexOf(quantity), this.position) : NO_DATA;
    return code === NO_DATA ? "" : DRIFT[code] < 1e-4 ? "less than 0.0001" : DRIFT[code].toPrecision(2);
  }

  holds(condition) {
    if (condition[0] === "!") return !this.holds(condition.slice(1));
    const [name, of] = condition.split(":");
    const { frame, step } = this;
    switch (name) {
      case "first_step": return step === 0;
      case "first_layer": return this.layer === 0;
      case "full": return frame.kinds.values[step] === 0;
      case "new_block": return step === 0 || frame.blocks.values[step] !== frame.blocks.values[step - 1];
      case "prompt": case "block": case "rest": return this.region === WHY_REGIONS.indexOf(name);
      case "answer": return this.region > 0;
      case "after_block": return this.position >= this.block.to;
      case "refresh": return this.refreshed(step, this.regionOf(of));
      case "recomputed": return of ? Boolean(this.computed[WHY_SITES.indexOf(of)]) : this.computed.every(Boolean);
      case "reused": return !this.computed.some(Boolean);
      case "again": return this.seek(step + 1, 1, (later) => this.doneAny(later)) >= 0;
      case "no": return this.fact(of) !== null && this.fact(of) <= 0;
      default: return false;
    }
  }

  value(placeholder) {
    const [name, of, area] = placeholder.split(":");
    const fact = this.fact(of) > 0 ? this.fact(of) : null;
    switch (name) {
      case "layer": return String(this.layer + 1);
      case "block": return String(this.frame.blocks.values[this.step] + 1);
      case "rows": return plural(this.frame.rows.values[this.step], "row");
      case "share": return this.share(of, area);
      case "times": return this.times((step) => this.doneAny(step));
      case "refreshes": return this.times((step) => this.refreshed(step, this.regionOf(of)));
      case "drift": return this.drifted(of);
      case "fact": return fact === null ? "" : fact.toPrecision(2);
      case "percent": return fact === null ? "" : (100 * fact).toFixed(1) + " %";
      default: return "";
    }
  }

  fill(text) {
    const filled = text.replace(/\[([^\]]*)\]/g, (_, part) => {
      return [...part.matchAll(/{([^}]*)}/g)].every(([, name]) => this.value(name)) ? part : "";
    });
    return filled.replace(/{([^}]*)}/g, (_, name) => this.value(name));
  }

  head() {
    if (this.holds("recomputed")) return "Recomputed";
    if (this.holds("reused")) return "Not recomputed";
    const reused = WHY_SITE_NAMES.filter((_, site) => !this.computed[site]);
    const names = reused.length < 2 ? reused.join("") : reused.slice(0, -1).join(", ") + " and " + reused[reused.length - 1];
    return names[0].toUpperCase() + names.slice(1) + " reused";
  }

  sentence() {
    const [window, layers] = this.rules.reasons;
    const own = layers && (this.rules.parts[0] === "none" || !this.holds("reused")) ? layers : window;
    const reason = own.find(({ when }) => when.split(" ").every((condition) => !condition || this.holds(condition)));
    return this.head() + (reason ? ": " + this.fill(reason.text) : "") + ".";
  }
}
