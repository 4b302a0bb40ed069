function inspectInks(node) {
  const style = getComputedStyle(node);
  const read = (name) => style.getPropertyValue(name).trim();
  return {
    ink: read("--ds-soft"), rule: read("--ds-rule"), mark: read("--ds-text"), paper: read("--ds-card"),
    hatch: read("--ds-dot"), a: read("--ds-a"), b: read("--ds-b"), new: read("--ds-new"),
    sure: read("--ds-sure"), differs: read("--ds-differs"),
  };
}

const SQUARE = MARGIN.left + MARGIN.right - MARGIN.top - MARGIN.bottom;

class Figure {
  constructor(name) {
    this.name = name;
    this.spec = null;
    this.pixels = new HeatPixels();
    this.selected = this.stop = null;
    this.root = make("figure", "ds-figure");
    this.root.dataset.figure = name;
    this.caption = make("figcaption");
    this.canvas = make("canvas");
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute("role", "application");
    this.legend = make("ul", "ds-legend");
    this.legend.setAttribute("aria-label", "Legend");
    this.readout = make("p", "ds-words");
    this.readout.setAttribute("aria-live", "polite");
    this.root.append(this.caption, this.canvas, this.legend, this.readout, this.tools());
    this.listen();
  }

  tools() {
    const row = make("p", "ds-tools");
    for (const [label, take] of [["PNG", "png"], ["SVG", "svg"], ["CSV", "csv"]]) {
      const key = make("button", "ds-tool", label);
      key.type = "button";
      key.dataset.save = take;
      key.addEventListener("click", () => this[take]());
      row.append(key);
    }
    return row;
  }

  listen() {
    const { canvas } = this;
    canvas.addEventListener("pointermove", (event) => this.point(event, false));
    canvas.addEventListener("click", (event) => this.point(event, true));
    canvas.addEventListener("pointerleave", () => {
      this.say("");
      this.spec?.leave?.();
    });
    canvas.addEventListener("keydown", (event) => this.key(event));
  }

  show(spec) {
    this.spec = spec;
    if (this.caption.textContent !== spec.title) this.caption.textContent = spec.title;
    this.canvas.setAttribute("aria-roledescription", spec.series ? "chart" : "heat map");
    this.canvas.setAttribute("aria-label", figureName(spec));
    for (const key of this.root.querySelectorAll("[data-save]")) {
      key.setAttribute("aria-label", "Save as " + key.textContent + ": " + spec.title);
    }
    this.drawLegend();
    this.draw();
  }

  draw() {
    if (!this.spec || !this.canvas.isConnected) return;
    const { square } = this.spec;
    const tall = square ? Math.max(Math.min(this.canvas.clientWidth - SQUARE, square), 120) : this.spec.height || 260;
    const { pen, width, height } = surface(this.canvas, tall);
    this.box = boxOf(square ? Math.min(width, height + SQUARE) : width, height, this.spec.left);
    const { left, top, right, bottom } = this.box;
    this.canvas.dataset.box = [left, top, right, bottom].map((v) => v.toFixed(2)).join();
    this.paint(pen);
  }

  paint(pen) {
    const inks = inspectInks(this.canvas);
    if (this.spec.series) drawPlot(pen, this.spec, this.box, inks);
    else {
      this.canvas.dataset.cells = this.spec.x.count + "," + this.spec.y.count;
      drawHeat(pen, this.spec, this.box, inks, this.pixels);
    }
  }

  drawLegend() {
    const key = JSON.stringify([this.spec.legend, this.spec.blank, this.spec.underName, (this.spec.series || []).map((s) => [s.name, s.colour, s.dash])]);
    if (this.legendKey === key) return;
    this.legendKey = key;
    this.legend.replaceChildren(...legendItems(this.spec));
  }

  inside(event) {
    const frame = this.canvas.getBoundingClientRect();
    return [event.clientX - frame.left, event.clientY - frame.top];
  }

  point(event, pin) {
    if (!this.spec || !this.box) return;
    const [px, py] = this.inside(event);
    if (this.spec.series) return this.pointPlot(px, py, pin);
    const cell = heatPlaces(this.spec, this.box).cell(px, py);
    if (!cell) return this.say("");
    this.choose(cell, pin);
  }

  pointPlot(px, py, pin) {
    const value = plotScale(this.spec.x, this.box.left, this.box.right).back(px);
    const high = plotScale(this.spec.y, this.box.bottom, this.box.top).back(py);
    if (value < this.spec.x.from || value > this.spec.x.to) return this.say("");
    this.say(this.spec.words ? this.spec.words(value, high) : "");
    if (this.spec.pick) this.spec.pick(value, high, pin);
  }

  choose(cell, pin) {
    this.selected = cell;
    this.say(this.spec.words(cell.x, cell.y));
    if (this.spec.pick) this.spec.pick(cell.x, cell.y, pin);
  }

  say(text) {
    if (this.readout.textContent !== text) this.readout.textContent = text;
  }

  key(event) {
    if (!this.spec) return;
    const far = event.shiftKey ? 10 : 1;
    const moved = this.spec.series ? this.keyPlot(event.key, far) : this.keyHeat(event.key, far);
    if (!moved) return;
    event.preventDefault();
    event.stopPropagation();
  }

  keyPlot(key, far) {
    const stops = plotStops(this.spec);
    const moves = { ArrowRight: far, ArrowUp: far, ArrowLeft: -far, ArrowDown: -far, Enter: 0 };
    const last = stops.length - 1;
    const ends = { Home: 0, End: last };
    if (last < 0 || !(key in moves || key in ends)) return false;
    const from = plotPlace(this.spec, stops, this.stop);
    this.stop = stops[Math.min(Math.max(ends[key] ?? from + moves[key], 0), last)];
    this.say(this.spec.words(...this.stop));
    this.spec.pick?.(...this.stop, true);
    return true;
  }

  keyHeat(key, far) {
    const moves = { ArrowRight: [far, 0], ArrowLeft: [-far, 0], ArrowDown: [0, far], ArrowUp: [0, -far] };
    const at = this.spec.at || {};
    const from = { x: at.x ?? this.selected?.x ?? 0, y: at.y ?? this.selected?.y ?? 0 };
    const [wide, high] = [this.spec.x.count, this.spec.y.count];
    if (key in moves) {
      const [dx, dy] = moves[key];
      from.x = Math.min(Math.max(from.x + dx, 0), wide - 1);
      from.y = Math.min(Math.max(from.y + dy, 0), high - 1);
    } else if (key === "Home") from.x = 0;
    else if (key === "End") from.x = wide - 1;
    else if (key !== "Enter") return false;
    this.choose(from, true);
    return true;
  }

  file(ending) {
    return "driftscope-" + this.name + "." + ending;
  }

  png() {
    const copy = make("canvas");
    Object.assign(copy, { width: this.canvas.width, height: this.canvas.height });
    const pen = copy.getContext("2d");
    pen.fillStyle = inspectInks(this.canvas).paper;
    pen.fillRect(0, 0, copy.width, copy.height);
    pen.drawImage(this.canvas, 0, 0);
    copy.toBlob((blob) => save(this.file("png"), blob));
  }

  svg() {
    const pen = new SvgPen(this.canvas.clientWidth, this.canvas.clientHeight);
    pen.fillStyle = inspectInks(this.canvas).paper;
    pen.fillRect(0, 0, this.canvas.clientWidth, this.canvas.clientHeight);
    this.paint(pen);
    save(this.file("svg"), new Blob([pen.text()], { type: "image/svg+xml" }));
  }

  csv() {
    save(this.file("csv"), new Blob([csv(this.rows())], { type: "text/csv" }));
  }

  rows() {
    const { spec } = this;
    if (spec.series) {
      const out = [["series", spec.x.name, spec.y.name]];
      for (const line of spec.series) line.xs.forEach((x, i) => out.push([line.name, x, line.ys[i]]));
      return out;
    }
    const tick = (axis, i) => (axis.tick ? axis.tick(i) : i + 1);
    const out = [[spec.x.name, spec.y.name, spec.unit || "value"]];
    for (let y = 0; y < spec.y.count; y++) {
      for (let x = 0; x < spec.x.count; x++) {
        const value = spec.value(x, y);
        const plain = value === null ? null : spec.plain ? spec.plain(value) : value;
        out.push([tick(spec.x, x), tick(spec.y, y), plain]);
      }
    }
    return out;
  }
}
