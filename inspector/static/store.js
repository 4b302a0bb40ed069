class Lane {
  constructor(name) {
    this.name = name;
    this.start = null;
    this.end = null;
    this.rows = [];
    this.clock = [0];
    this.shown = [0];
    this.forwards = [0];
    this.at = [];
    this.pieces = new Map();
    this.stops = new Set();
  }

  begin(start) {
    this.start = start;
    this.stops = new Set(start.stop);
    this.at = new Array(start.length).fill(null);
    for (const [place, id] of Object.entries(start.canvas)) {
      this.at[place] = { id, row: -1, sure: null, fixed: true };
    }
  }

  add(row) {
    const [step, block, kind, rows, forwards, left, ms, commits] = row;
    if (step < this.rows.length) return true;
    if (step > this.rows.length || !this.start) return false;
    const places = [];
    for (let i = 0; i < commits.length; i += 3) {
      const sure = commits[i + 2] < 0 ? null : commits[i + 2] / 1000;
      this.at[commits[i]] = { id: commits[i + 1], row: step, sure, fixed: false };
      places.push(commits[i]);
    }
    this.rows.push({ step, block, kind, rows, forwards, left, ms, places });
    this.clock.push(this.clock[step] + ms);
    this.shown.push(this.shown[step] + places.length);
    this.forwards.push(this.forwards[step] + forwards);
    return true;
  }

  token(place, frame) {
    const found = this.at[place];
    return found && found.row < frame ? found : null;
  }

  firstEnd(frame) {
    for (let i = 0; i < this.at.length; i++) {
      const token = this.token(i, frame);
      if (token && this.stops.has(token.id)) return i;
    }
    return this.at.length;
  }

  tokensBeforeEnd(frame) {
    const end = this.firstEnd(frame);
    let count = 0;
    for (let i = 0; i < end; i++) count += this.token(i, frame) && !this.at[i].fixed ? 1 : 0;
    return count;
  }

  text(frame) {
    const end = this.firstEnd(frame);
    let last = end - 1;
    while (last >= 0 && !this.token(last, frame)) last--;
    const parts = [];
    let known = [];
    for (let i = 0; i <= last; i++) {
      const token = this.token(i, frame);
      if (token) {
        known.push(this.pieces.get(token.id));
        continue;
      }
      if (known.length) parts.push(joined(known));
      known = [];
      parts.push(null);
    }
    if (known.length) parts.push(joined(known));
    return parts;
  }

  masksLeft(frame) {
    return frame ? this.rows[frame - 1].left : this.at.filter((t) => !t || !t.fixed).length;
  }
}

class Store {
  constructor() {
    this.held = false;
    this.clear(null);
  }

  clear(run) {
    this.run = run;
    this.lanes = { a: new Lane("a"), b: new Lane("b") };
    this.summary = null;
    this.state = "empty";
    this.pending = false;
    this.wait = null;
    this.message = "";
    this.question = null;
    this.version = "";
    this.parent = "";
  }

  take(news) {
    if (news.run === null) {
      this.message = news.message || "";
      if (news.state === "failed") this.refusal = true;
      if (news.state === "empty" && !this.run) this.state = "empty";
      return true;
    }
    this.refusal = false;
    if (news.reset) this.clear(news.run);
    this.pending = news.run !== this.run;
    let whole = true;
    this.state = news.state;
    this.wait = news.wait || null;
    if (this.pending) return true;
    this.message = news.message || "";
    if (news.parent !== undefined) this.parent = news.parent;
    if (news.recorded !== undefined) this.version = news.recorded;
    for (const name of ["a", "b"]) {
      const part = news.lanes[name];
      if (!part) continue;
      const lane = this.lanes[name];
      if (part.start) lane.begin(part.start);
      for (const [id, piece] of Object.entries(part.pieces || {})) lane.pieces.set(+id, piece);
      for (const row of part.rows || []) whole = lane.add(row) && whole;
      if (part.end) lane.end = part.end;
    }
    if (news.summary) this.summary = news.summary;
    if (news.question !== undefined) this.question = news.question;
    return whole;
  }

  get started() {
    return Object.values(this.lanes).filter((lane) => lane.start);
  }

  get live() {
    return !["empty", "example", "imported", "recording", "done", "stopped", "failed", "memory"].includes(this.state);
  }

  get busy() {
    return this.held || this.live || this.state === "recording";
  }

  get timed() {
    return this.started.every((lane) => !["layers", "probe"].includes(lane.start.record));
  }

  series(mode) {
    const name = { time: "clock", tokens: "shown" }[mode];
    return this.started.map((lane) => (name ? lane[name] : lane.clock.map((_, i) => i)));
  }

  extent(mode) {
    return Math.max(0, ...this.series(mode).map((values) => values[values.length - 1]));
  }

  marks(mode) {
    return [...new Set(this.series(mode).flat())].sort((x, y) => x - y);
  }

  frames(mode, value) {
    const out = { a: 0, b: 0 };
    for (const lane of this.started) {
      if (mode === "step") {
        out[lane.name] = Math.min(Math.floor(value + 1e-6), lane.rows.length);
        continue;
      }
      const values = mode === "time" ? lane.clock : lane.shown;
      let frame = 0;
      while (frame < lane.rows.length && values[frame + 1] <= value + 1e-6) frame++;
      out[lane.name] = frame;
    }
    return out;
  }

  latest() {
    return { a: this.lanes.a.rows.length, b: this.lanes.b.rows.length };
  }
}
