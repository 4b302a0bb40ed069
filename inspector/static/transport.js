const RATES = { time: 1, step: 0.012, tokens: 0.03 };

class Transport {
  constructor(root, store, onMove) {
    this.store = store;
    this.onMove = onMove;
    this.mode = "time";
    this.value = 0;
    this.follow = true;
    this.playing = false;
    this.find = (name) => root.querySelector("[data-" + name + "]");
    this.scrub = this.find("scrub");
    this.scrub.addEventListener("input", () => this.go(+this.scrub.value));
    this.scrub.addEventListener("keydown", (event) => this.key(event));
    this.find("play").addEventListener("click", () => this.toggle());
    this.find("align").addEventListener("change", (event) => this.align(event.target.value));
  }

  frames() {
    return this.follow ? this.store.latest() : this.store.frames(this.mode, this.value);
  }

  refresh() {
    const extent = this.store.extent(this.mode);
    if (this.follow) this.value = extent;
    this.value = Math.min(this.value, extent);
    this.scrub.max = Math.max(extent, 1e-9);
    this.scrub.value = this.value;
    this.scrub.disabled = extent === 0;
    this.find("play").disabled = extent === 0;
    this.find("play").textContent = this.playing ? "⏸ Pause" : "▶ Replay";
    const text = this.words(this.value) + " of " + this.words(extent);
    this.find("where").textContent = text;
    this.scrub.setAttribute("aria-valuetext", text);
  }

  words(value) {
    if (this.mode === "time") return duration(value);
    const whole = Math.floor(value + 1e-6);
    return this.mode === "step" ? plural(whole, "step") : plural(whole, "token");
  }

  go(value) {
    const extent = this.store.extent(this.mode);
    this.value = Math.min(Math.max(value, 0), extent);
    this.follow = this.value >= extent && !this.playing;
    this.onMove();
  }

  align(mode) {
    this.hold();
    const before = this.frames();
    this.mode = mode;
    const lanes = this.store.started;
    const values = { time: "clock", tokens: "shown" }[mode];
    const places = lanes.map((lane) => (values ? lane[values][before[lane.name]] : before[lane.name]));
    if (!this.follow) this.value = Math.max(0, ...places);
    this.onMove();
  }

  move(direction, count) {
    this.hold();
    const marks = this.store.marks(this.mode);
    let at = marks.findIndex((mark) => mark > this.value + 1e-6) - 1;
    if (at < -1) at = marks.length - 1;
    const between = direction < 0 && this.value > marks[at] + 1e-6 ? 1 : 0;
    const next = Math.min(Math.max(at + between + direction * count, 0), marks.length - 1);
    this.go(marks[next] ?? 0);
  }

  key(event) {
    const count = event.shiftKey ? 10 : 1;
    if (["ArrowRight", "ArrowUp"].includes(event.key)) this.move(1, count);
    else if (["ArrowLeft", "ArrowDown"].includes(event.key)) this.move(-1, count);
    else if (event.key === "Home") this.go(0);
    else if (event.key === "End") this.go(this.store.extent(this.mode));
    else if (event.key === " ") this.toggle();
    else return;
    event.preventDefault();
  }

  toggle() {
    if (this.playing) return this.hold();
    if (this.follow || this.value >= this.store.extent(this.mode)) this.value = 0;
    this.playing = true;
    this.follow = false;
    let before = performance.now();
    const tick = (now) => {
      if (!this.playing) return;
      const speed = +this.find("speed").value * RATES[this.mode];
      this.value += Math.max(now - before, 0) * speed;
      before = now;
      if (this.value >= this.store.extent(this.mode)) {
        this.playing = false;
        this.follow = true;
      }
      this.onMove();
      if (this.playing) requestAnimationFrame(tick);
    };
    this.onMove();
    requestAnimationFrame(tick);
  }

  hold() {
    this.playing = false;
    this.refresh();
  }

  show(lane, frame) {
    this.hold();
    const values = { time: "clock", tokens: "shown" }[this.mode];
    this.go(values ? lane[values][frame] : frame);
  }

  reset(timed) {
    this.playing = false;
    this.follow = true;
    const choice = this.find("align");
    choice.querySelector('[value="time"]').disabled = !timed;
    if (!timed && this.mode === "time") choice.value = this.mode = "step";
  }
}
