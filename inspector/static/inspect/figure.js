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
    this.selected = null;
    this.root = make("figure", "ds-figure");
    this.root.dataset.figure = name;
    this.caption = make("figcaption");
    this.canvas = make("canvas");
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute("role", "img");
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
    this.canvas.setAttribute("aria-label", spec.label || spec.title);
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
    const key = JSON.stringify([this.spec.legend, (this.spec.series || []).map((s) => [s.name, s.colour, s.dash])]);
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
    if (!this.spec || this.spec.series) return;
    const far = event.shiftKey ? 10 : 1;
    const moves = { ArrowRight: [far, 0], ArrowLeft: [-far, 0], ArrowDown: [0, far], ArrowUp: [0, -far] };
    const at = this.spec.at || {};
    const from = { x: at.x ?? this.selected?.x ?? 0, y: at.y ?? this.selected?.y ?? 0 };
    const [wide, high] = [this.spec.x.count, this.spec.y.count];
    if (event.key in moves) {
      const [dx, dy] = moves[event.key];
      from.x = Math.min(Math.max(from.x + dx, 0), wide - 1);
      from.y = Math.min(Math.max(from.y + dy, 0), high - 1);
    } else if (event.key === "Home") from.x = 0;
    else if (event.key === "End") from.x = wide - 1;
    else if (event.key !== "Enter") return;
    event.preventDefault();
    event.stopPropagation();
    this.choose(from, true);
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

function legendItems(spec) {
  const items = [];
  const key = (text, paint) => {
    const item = make("li");
    const swatch = make("span", "ds-swatch");
    paint(swatch);
    item.append(swatch, document.createTextNode(text));
    items.push(item);
  };
  for (const line of spec.series || []) {
    if (line.name) key(line.name, (node) => lineSwatch(node, line));
  }
  const legend = spec.legend;
  if (legend?.kind === "scale") items.push(scaleItem(legend));
  for (const [colour, text, glyph] of legend?.items || []) {
    key(text, (node) => {
      node.style.background = rgb(colour);
      node.style.color = inkOn(colour);
      node.textContent = glyph || "";
    });
  }
  if (!spec.series) key(spec.blank || "no data", (node) => node.classList.add("ds-hatch"));
  if (spec.under) key(spec.underName, (node) => node.classList.add("ds-under"));
  if (spec.dots) key(spec.dotName || "unmasked here", (node) => node.classList.add("ds-dot"));
  return items;
}

function lineSwatch(node, line) {
  if (line.mark) {
    node.classList.add("ds-mark");
    node.style.color = line.colour;
    return void (node.textContent = line.mark === "cross" ? "✕" : "●");
  }
  node.classList.add("ds-line");
  node.style.borderTopColor = line.colour;
  node.style.borderTopStyle = line.dash?.length ? "dashed" : "solid";
  if (line.kind === "points" || line.kind === "bars") node.style.background = line.colour;
}

function scaleItem(legend) {
  const item = make("li", "ds-legend-scale");
  const bar = make("span", "ds-ramp");
  const stops = Array.from({ length: 11 }, (_, i) => rgb(legend.colour(i / 10)));
  bar.style.background = "linear-gradient(90deg, " + stops.join(", ") + ")";
  const ticks = make("span", "ds-ramp-ticks");
  for (const [place, text] of legend.ticks) {
    const tick = make("i", "", text);
    tick.style.left = place * 100 + "%";
    ticks.append(tick);
  }
  for (const place of legend.marks || []) {
    const mark = make("span", "ds-ramp-mark");
    mark.style.left = place * 100 + "%";
    bar.append(mark);
  }
  const frame = make("span", "ds-ramp-frame");
  frame.append(bar, ticks);
  item.append(document.createTextNode(legend.name), frame);
  return item;
}
