const RECORD_LEVELS = { "": 0, off: 0, steps: 1, layers: 2, probe: 3 };
const LEVEL_WORDS = {
  1: "plans", 2: "drifts", 3: "exact values (probe)",
};

class Inspector {
  constructor(root, store, ask, onMove) {
    this.root = root;
    this.store = store;
    this.ask = ask;
    this.onMove = onMove;
    this.watchers = [];
    this.cursor = new Cursor((how) => this.moved(how));
    this.frames = {};
    this.data = new Map();
    this.panels = {};
    this.key = null;
    this.find = (name) => root.querySelector("[data-inspect-" + name + "]");
    this.loaded = {};
    this.tabs = Object.entries(INSPECT_VIEWS).filter(([, view]) => !view.beside);
    this.name = this.tabs[0][0];
    this.buildTabs();
    this.listen();
  }

  buildTabs() {
    for (const [name, view] of this.tabs) {
      const tab = make("button", "ds-tab", view.title);
      tab.type = "button";
      tab.dataset.tab = name;
      tab.setAttribute("role", "tab");
      tab.addEventListener("click", () => this.open(name));
      this.find("tabs").append(tab);
    }
    this.find("tabs").addEventListener("keydown", (event) => this.tabKey(event));
    this.markTab();
  }

  tabKey(event) {
    const names = this.tabs.map(([name]) => name);
    const moves = { ArrowRight: 1, ArrowLeft: -1 };
    let at = names.indexOf(this.name);
    if (event.key in moves) at = (at + moves[event.key] + names.length) % names.length;
    else if (event.key === "Home") at = 0;
    else if (event.key === "End") at = names.length - 1;
    else return;
    event.preventDefault();
    this.open(names[at]);
    this.find("tabs").children[at].focus();
  }

  listen() {
    for (const name of ["a", "b"]) {
      this.find("lane-" + name).addEventListener("click", () => this.cursor.move({ lane: name, ...this.follow(name) }));
    }
    this.find("layer").addEventListener("input", (event) => this.cursor.move({ layer: +event.target.value }));
    this.find("step").addEventListener("input", (event) => this.cursor.move({ step: +event.target.value }));
    this.root.addEventListener("keydown", (event) => this.keys(event));
    new ResizeObserver(() => this.draw()).observe(this.root);
    this.seen = false;
    const watch = new IntersectionObserver((entries) => {
      if (!entries.some((entry) => entry.isIntersecting)) return;
      watch.disconnect();
      this.seen = true;
      this.load();
    });
    watch.observe(this.root);
    new MutationObserver(() => this.draw()).observe(document.body, { attributeFilter: ["class"] });
  }

  keys(event) {
    const { pinned } = this.cursor;
    const most = (this.frame?.layers || 1) - 1;
    if (event.key === "Escape") this.cursor.release();
    else if (event.target.matches("select, textarea")) return;
    else if (event.key === "[") this.cursor.move({ layer: Math.max(pinned.layer - 1, 0) });
    else if (event.key === "]") this.cursor.move({ layer: Math.min(pinned.layer + 1, most) });
    else return;
    event.preventDefault();
  }

  follow(name) {
    const last = this.store.lanes[name].rows.length - 1;
    return { step: Math.max(Math.min(this.cursor.pinned.step, last), 0) };
  }

  get frame() {
    return this.frames[this.cursor.now.lane];
  }

  open(name) {
    this.name = name;
    this.seen = true;
    this.markTab();
    this.load();
  }

  markTab() {
    for (const tab of this.find("tabs").children) {
      const chosen = tab.dataset.tab === this.name;
      tab.setAttribute("aria-selected", chosen);
      tab.tabIndex = chosen ? 0 : -1;
      if (chosen) this.scrollTo(tab);
    }
    this.root.dataset.view = this.name;
  }

  scrollTo(tab) {
    const [strip, box] = [tab.parentNode.getBoundingClientRect(), tab.getBoundingClientRect()];
    if (box.left < strip.left) tab.parentNode.scrollLeft -= strip.left - box.left;
    if (box.right > strip.right) tab.parentNode.scrollLeft += box.right - strip.right;
  }

  refresh(version) {
    const key = this.store.run + "/" + version;
    if (key === this.key) return;
    this.key = key;
    this.frames = {};
    this.data.clear();
    this.loaded = {};
    this.load();
  }

  async fetch(lane, name) {
    const key = lane + "/" + name;
    if (!this.data.has(key)) {
      const asked = this.ask(this.store.run, lane, name).then((text) => unpack(JSON.parse(text)));
      this.data.set(key, asked.catch(() => ({ missing: "The view could not be read; reload the page." })));
      const { loaded } = this;
      this.data.get(key).then((found) => (loaded[key] = found));
    }
    return this.data.get(key);
  }

  async load() {
    const key = this.key;
    const lanes = this.store.started.map((lane) => lane.name);
    if (!lanes.length || this.store.live || !this.seen) return this.draw();
    for (const lane of lanes) {
      const frame = await this.fetch(lane, "frame");
      if (key !== this.key) return;
      if (!frame.missing) this.frames[lane] = frame;
    }
    this.settle(lanes);
    this.draw();
    for (const [source, level] of [...this.sources(INSPECT_VIEWS[this.name]), ...this.sources(INSPECT_VIEWS.card)]) {
      for (const lane of lanes) {
        if (source && this.keeps(lane, level)) await this.fetch(lane, source);
        if (key !== this.key) return;
      }
    }
    this.draw();
  }

  sources(view) {
    return [[view.source, view.level], ...(view.also || [])];
  }

  settle(lanes) {
    const { pinned } = this.cursor;
    if (!this.frames[pinned.lane]) pinned.lane = lanes[0];
    const layers = this.frame?.layers || 1;
    pinned.layer = pinned.layer === null ? Math.floor(layers / 2) : Math.min(pinned.layer, layers - 1);
  }

  keeps(lane, level) {
    return this.frames[lane] && RECORD_LEVELS[level] <= RECORD_LEVELS[this.frames[lane].level];
  }

  given(lane, source) {
    return this.loaded[lane + "/" + source];
  }

  moved(how) {
    if (how === "move") this.onMove(this.cursor.pinned);
    else this.draw();
  }

  panel() {
    if (!this.panels[this.name]) this.panels[this.name] = new Panel(this.find("panel"), this.name, this);
    for (const [name, panel] of Object.entries(this.panels)) panel.root.hidden = name !== this.name;
    return this.panels[this.name];
  }

  lack(view, frame) {
    if (this.store.state === "recording") return "Recording …";
    if (this.store.live) return "The views open when the run ends.";
    if (!this.store.started.length) return "There is no run yet.";
    if (!frame) return "Reading …";
    if (RECORD_LEVELS[view.level] > RECORD_LEVELS[frame.level]) {
      const lacks = "This run has no recorded " + LEVEL_WORDS[RECORD_LEVELS[view.level]] + ".";
      return props.offline ? lacks : lacks + " Press Record above to run it again, without timing, with the recorder on.";
    }
    if (!view.source) return "";
    const found = this.given(this.cursor.now.lane, view.source);
    return found ? found.missing || "" : "Reading …";
  }

  draw() {
    const panel = this.panel();
    const view = INSPECT_VIEWS[this.name];
    this.drawBar();
    const lack = this.lack(view, this.frame);
    this.root.dataset.ready = lack ? "" : this.name;
    if (lack) panel.say(lack);
    else panel.draw(view.source && this.given(this.cursor.now.lane, view.source));
    this.drawCard();
    for (const watcher of this.watchers) watcher();
  }

  drawCard() {
    const card = this.find("card");
    const { position } = this.cursor.now;
    card.hidden = position === null || !this.frame || position >= this.frame.positions;
    if (card.hidden) return;
    this.card = this.card || new Panel(card, "card", this);
    this.card.draw();
  }

  drawBar() {
    const { now } = this.cursor;
    this.find("level").textContent = recordWords(this.store, this.frames);
    const frame = this.frame;
    for (const name of ["a", "b"]) {
      const key = this.find("lane-" + name);
      key.setAttribute("aria-pressed", now.lane === name);
      key.disabled = !this.store.lanes[name].start;
    }
    const set = (name, most, value) => {
      const input = this.find(name);
      Object.assign(input, { max: Math.max(most - 1, 0), disabled: !frame });
      input.value = value;
      this.find(name + "-words").textContent = frame ? value + 1 + " of " + most : "–";
      input.setAttribute("aria-valuetext", this.find(name + "-words").textContent);
    };
    set("layer", frame?.layers || 0, Math.min(now.layer, (frame?.layers || 1) - 1));
    set("step", frame?.steps || 0, Math.min(now.step, (frame?.steps || 1) - 1));
    this.find("where").textContent = this.where(now, frame);
    Object.assign(this.root.dataset, { lane: now.lane, step: now.step, layer: now.layer, position: now.position ?? "" });
  }

  where(now, frame) {
    if (!frame || now.position === null) return "No token chosen. Point at a cell to see its token; a click or Enter pins it, Escape unpins it.";
    const part = now.position < frame.prompt ? "prompt" : "answer token " + (now.position - frame.prompt + 1);
    return "Position " + (now.position + 1) + " (" + part + "), " + this.tokenText(now.lane, now.position, now.step) + (this.cursor.held ? ", pinned" : "");
  }

  tokenText(name, position, step) {
    const frame = this.frames[name];
    const lane = this.store.lanes[name];
    if (!frame || position === null || position >= frame.positions) return "";
    const at = frame.revealed.values[position];
    const known = position < frame.prompt || frame.before.values[position] || (at >= 0 && at < step);
    if (!known) return "mask";
    return quoted(lane.pieces.get(frame.ids.values[position]));
  }
}
