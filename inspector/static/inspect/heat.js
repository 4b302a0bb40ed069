const MARGIN = { left: 46, right: 12, top: 8, bottom: 34 };

function boxOf(width, height, left = MARGIN.left) {
  return {
    left,
    top: MARGIN.top,
    right: width - MARGIN.right,
    bottom: height - MARGIN.bottom,
  };
}

class HeatPixels {
  constructor() {
    this.key = null;
    this.image = make("canvas");
  }

  of(spec) {
    if (this.key !== null && this.key === spec.key) return this.image;
    const [wide, high] = [spec.x.count, spec.y.count];
    this.image = make("canvas");
    Object.assign(this.image, { width: Math.max(wide, 1), height: Math.max(high, 1) });
    const pen = this.image.getContext("2d");
    const pixels = pen.createImageData(Math.max(wide, 1), Math.max(high, 1));
    for (let y = 0; y < high; y++) {
      for (let x = 0; x < wide; x++) {
        const value = spec.value(x, y);
        if (value === null) continue;
        pixels.data.set([...spec.colour(value), 255], 4 * (y * wide + x));
      }
    }
    pen.putImageData(pixels, 0, 0);
    this.lines = heatLines(spec);
    this.key = spec.key;
    return this.image;
  }
}

function hatch(pen, ink, paper) {
  const tile = make("canvas");
  tile.width = tile.height = 6;
  const brush = tile.getContext("2d");
  brush.fillStyle = paper;
  brush.fillRect(0, 0, 6, 6);
  brush.strokeStyle = ink;
  brush.lineWidth = 1;
  brush.beginPath();
  brush.moveTo(-1, 7);
  brush.lineTo(7, -1);
  brush.stroke();
  return pen.createPattern ? pen.createPattern(tile, "repeat") : brush.createPattern(tile, "repeat");
}

function heatPlaces(spec, box) {
  const wide = (box.right - box.left) / Math.max(spec.x.count, 1);
  const high = (box.bottom - box.top) / Math.max(spec.y.count, 1);
  return {
    left: (x) => box.left + x * wide,
    top: (y) => box.top + y * high,
    wide,
    high,
    cell: (px, py) => {
      const x = Math.floor((px - box.left) / wide);
      const y = Math.floor((py - box.top) / high);
      return x < 0 || y < 0 || x >= spec.x.count || y >= spec.y.count ? null : { x, y };
    },
  };
}

function drawHeat(pen, spec, box, inks, pixels) {
  const place = heatPlaces(spec, box);
  pen.fillStyle = hatch(pen, inks.hatch, inks.paper);
  pen.fillRect(box.left, box.top, box.right - box.left, box.bottom - box.top);
  pen.imageSmoothingEnabled = false;
  pen.drawImage(pixels.of(spec), box.left, box.top, box.right - box.left, box.bottom - box.top);
  heatGlyphs(pen, spec, place);
  heatEdges(pen, pixels.lines, place);
  heatMarks(pen, spec, box, inks, place);
  heatDots(pen, spec, place);
  axisTicks(pen, spec.x, box, inks, place.left, place.wide, "x");
  axisTicks(pen, spec.y, box, inks, place.top, place.high, "y");
  if (spec.at) crosshair(pen, spec, box, inks, place);
}

function heatGlyphs(pen, spec, place) {
  if (!spec.glyph || place.high < 11) return;
  pen.font = "bold 10px system-ui, sans-serif";
  pen.textAlign = "center";
  pen.textBaseline = "middle";
  const narrow = place.wide < 9;
  for (let y = 0; y < spec.y.count; y++) {
    const glyph = (x) => (spec.value(x, y) === null ? "" : spec.glyph(spec.value(x, y)));
    heatRuns(spec.x.count, glyph, narrow, (from, to, text) => {
      if ((to - from) * place.wide < 9) return;
      pen.fillStyle = inkOn(spec.colour(spec.value(from, y)));
      pen.fillText(text, place.left((from + to) / 2), place.top(y + 0.5));
    });
  }
}

function heatRuns(count, name, merge, take) {
  for (let from = 0; from < count; ) {
    const text = name(from);
    let to = from + 1;
    while (merge && to < count && name(to) === text) to++;
    if (text) take(from, to, text);
    from = to;
  }
}

function heatLines(spec) {
  const lines = [];
  for (const edge of ["over", "under"]) {
    for (let y = 0; spec[edge] && y < spec.y.count; y++) {
      const ink = (x) => (spec.value(x, y) !== null && spec[edge](x, y) ? inkOn(spec.colour(spec.value(x, y))) : "");
      heatRuns(spec.x.count, ink, true, (from, to, colour) => lines.push([y, from, to, colour, edge]));
    }
  }
  return lines;
}

function heatEdges(pen, lines, place) {
  if (place.high < 3) return;
  const thick = Math.min(Math.max(place.high * 0.22, 1), 3);
  for (const [y, from, to, colour, edge] of lines) {
    pen.fillStyle = colour;
    pen.fillRect(place.left(from), edge === "over" ? place.top(y) + thick : place.top(y + 1) - thick, place.left(to) - place.left(from), thick);
  }
}

function heatMarks(pen, spec, box, inks, place) {
  for (const [axis, from, to] of [["x", box.top, box.bottom], ["y", box.left, box.right]]) {
    for (const mark of spec[axis].marks || []) {
      const at = Math.round(axis === "x" ? place.left(mark.at) : place.top(mark.at)) + 0.5;
      pen.strokeStyle = mark.strong ? inks.mark : inks.rule;
      pen.lineWidth = mark.strong ? 2 : 1;
      pen.beginPath();
      if (axis === "x") pen.moveTo(at, from), pen.lineTo(at, to);
      else pen.moveTo(from, at), pen.lineTo(to, at);
      pen.stroke();
    }
  }
}

function heatDots(pen, spec, place) {
  for (const [x, y] of spec.dots || []) {
    const size = Math.max(Math.min(place.wide, place.high, 9) / 2, 1.6);
    pen.fillStyle = "#e69f00";
    pen.strokeStyle = "#1c1300";
    pen.lineWidth = 1;
    pen.beginPath();
    pen.arc(place.left(x + 0.5), place.top(y + 0.5), size, 0, 7);
    pen.fill();
    if (size > 2.5) pen.stroke();
  }
}

function crosshair(pen, spec, box, inks, place) {
  const { x, y } = spec.at;
  pen.lineWidth = 2;
  for (const [colour, dash] of [[inks.paper, []], [inks.mark, [4, 3]]]) {
    pen.strokeStyle = colour;
    pen.setLineDash(dash);
    const left = x === null ? box.left : place.left(x);
    const top = y === null ? box.top : place.top(y);
    const wide = x === null ? box.right - box.left : Math.max(place.wide, 3);
    const high = y === null ? box.bottom - box.top : Math.max(place.high, 3);
    if (x !== null) pen.strokeRect(left - 1, box.top, wide + 2, box.bottom - box.top);
    if (y !== null) pen.strokeRect(box.left, top - 1, box.right - box.left, high + 2);
  }
  pen.setLineDash([]);
}

function axisTicks(pen, axis, box, inks, place, size, name) {
  pen.font = "11px system-ui, sans-serif";
  pen.fillStyle = inks.ink;
  const room = name === "x" ? (box.right - box.left) / 64 : (box.bottom - box.top) / 18;
  const every = niceStep(axis.count, Math.max(room, 1));
  const tick = axis.tick || ((i) => String(i + 1));
  const ticks = axis.ticks || [];
  if (!axis.ticks) for (let i = 0; i < axis.count; i += every) ticks.push([i + 0.5, tick(i)]);
  pen.textAlign = name === "x" ? "center" : "right";
  pen.textBaseline = name === "x" ? "top" : "middle";
  for (const [at, text] of ticks) {
    if (name === "x") pen.fillText(text, place(at), box.bottom + 3);
    else pen.fillText(text, box.left - 5, place(at));
  }
  axisName(pen, axis, box, inks, name);
}

function axisName(pen, axis, box, inks, name) {
  pen.font = "bold 11px system-ui, sans-serif";
  pen.fillStyle = inks.ink;
  pen.textBaseline = "bottom";
  pen.textAlign = name === "x" ? "right" : "left";
  const arrow = name === "x" ? " →" : axis.up ? " ↑" : " ↓";
  const text = axis.name && axis.name + arrow;
  if (name === "x") pen.fillText(text, box.right, box.bottom + MARGIN.bottom - 2);
  else pen.fillText(text, 2, box.bottom + MARGIN.bottom - 2);
}

function niceStep(count, most) {
  for (const step of [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]) if (count / step <= most) return step;
  return 1024;
}
