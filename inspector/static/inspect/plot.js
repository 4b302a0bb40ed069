function plotScale(axis, from, to) {
  const [low, high] = axis.log ? [Math.log10(axis.from), Math.log10(axis.to)] : [axis.from, axis.to];
  const span = high - low || 1;
  const read = (value) => (axis.log ? Math.log10(Math.max(value, axis.from)) : value);
  return {
    to: (value) => from + ((read(value) - low) / span) * (to - from),
    back: (pixel) => {
      const value = low + ((pixel - from) / (to - from)) * span;
      return axis.log ? 10 ** value : value;
    },
  };
}

function plotTicks(axis, most) {
  if (axis.log) {
    const out = [];
    const low = Math.ceil(Math.log10(axis.from) - 1e-9);
    for (let power = low; 10 ** power <= axis.to * 1.0001; power++) out.push(10 ** power);
    return out;
  }
  const span = axis.to - axis.from || 1;
  const rough = span / Math.max(most, 1);
  const base = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((n) => n * base).find((n) => n >= rough);
  const whole = axis.whole ? Math.max(Math.round(step), 1) : step;
  const out = [];
  const first = Math.ceil(axis.from / whole - 1e-9) * whole;
  for (let value = first; value <= axis.to + whole * 1e-6; value += whole) out.push(Math.round(value / whole) * whole + 0);
  return out;
}

function tickText(axis, value) {
  if (axis.tick) return axis.tick(value);
  return axis.log ? String(+value.toPrecision(1)) : number(+value.toPrecision(6), 4);
}

function drawPlot(pen, spec, box, inks) {
  const x = plotScale(spec.x, box.left, box.right);
  const y = plotScale(spec.y, box.bottom, box.top);
  plotFrame(pen, spec, box, inks, x, y);
  for (const band of spec.bands || []) {
    pen.globalAlpha = 0.16;
    pen.fillStyle = band.colour;
    pen.fillRect(x.to(band.from), box.top, x.to(band.to) - x.to(band.from), box.bottom - box.top);
    pen.globalAlpha = 1;
  }
  for (const line of spec.series) plotSeries(pen, line, x, y, box);
  for (const rule of spec.rules || []) plotRule(pen, rule, x, y, box, inks);
  if (spec.at !== undefined && spec.at !== null) {
    plotRule(pen, { x: spec.at, colour: inks.mark, dash: [4, 3] }, x, y, box, inks);
  }
}

function plotFrame(pen, spec, box, inks, x, y) {
  pen.font = "11px system-ui, sans-serif";
  pen.lineWidth = 1;
  for (const value of plotTicks(spec.x, (box.right - box.left) / 64)) {
    pen.strokeStyle = inks.rule;
    pen.beginPath();
    pen.moveTo(x.to(value), box.top);
    pen.lineTo(x.to(value), box.bottom);
    pen.stroke();
    pen.fillStyle = inks.ink;
    pen.textAlign = "center";
    pen.textBaseline = "top";
    pen.fillText(tickText(spec.x, value), x.to(value), box.bottom + 3);
  }
  for (const value of plotTicks(spec.y, (box.bottom - box.top) / 24)) {
    pen.strokeStyle = inks.rule;
    pen.beginPath();
    pen.moveTo(box.left, y.to(value));
    pen.lineTo(box.right, y.to(value));
    pen.stroke();
    pen.fillStyle = inks.ink;
    pen.textAlign = "right";
    pen.textBaseline = "middle";
    pen.fillText(tickText(spec.y, value), box.left - 5, y.to(value));
  }
  axisName(pen, spec.x, box, inks, "x");
  axisName(pen, { name: spec.y.name, up: true }, box, inks, "y");
}

function plotSeries(pen, line, x, y, box) {
  pen.strokeStyle = pen.fillStyle = line.colour;
  pen.lineWidth = line.width || 2;
  pen.setLineDash(line.dash || []);
  if (line.kind === "points") plotPoints(pen, line, x, y);
  else if (line.kind === "bars") plotBars(pen, line, x, y, box);
  else plotLine(pen, line, x, y);
  pen.setLineDash([]);
}

function plotLine(pen, line, x, y) {
  pen.beginPath();
  let drawing = false;
  line.xs.forEach((value, i) => {
    const high = line.ys[i];
    if (high === null || Number.isNaN(high)) {
      drawing = false;
      return;
    }
    const [px, py] = [x.to(value), y.to(high)];
    if (drawing && line.kind === "step") pen.lineTo(px, y.to(line.ys[i - 1]));
    if (drawing) pen.lineTo(px, py);
    else pen.moveTo(px, py);
    drawing = true;
  });
  pen.stroke();
}

function plotPoints(pen, line, x, y) {
  pen.globalAlpha = line.alpha ?? 1;
  line.xs.forEach((value, i) => {
    if (line.ys[i] === null || Number.isNaN(line.ys[i])) return;
    const [px, py, size] = [x.to(value), y.to(line.ys[i]), line.size || 2.5];
    pen.beginPath();
    if (line.mark === "cross") {
      pen.moveTo(px - size, py - size), pen.lineTo(px + size, py + size);
      pen.moveTo(px - size, py + size), pen.lineTo(px + size, py - size);
      pen.stroke();
    } else {
      pen.arc(px, py, size, 0, 7);
      pen.fill();
    }
  });
  pen.globalAlpha = 1;
}

function plotBars(pen, line, x, y, box) {
  const wide = line.wide || 0.8;
  line.xs.forEach((value, i) => {
    const low = line.base ? line.base[i] : 0;
    if (line.ys[i] === null || Number.isNaN(line.ys[i])) return;
    const [from, to] = line.ends ? [value, line.ends[i]] : [value - wide / 2, value + wide / 2];
    const left = x.to(from);
    const top = y.to(low + line.ys[i]);
    const bottom = Math.min(y.to(low), box.bottom);
    pen.fillRect(left, top, Math.max(x.to(to) - left, 1), Math.max(bottom - top, 0));
  });
}

function plotRule(pen, rule, x, y, box, inks) {
  pen.strokeStyle = rule.colour || inks.mark;
  pen.lineWidth = 1.5;
  pen.setLineDash(rule.dash || []);
  pen.beginPath();
  if (rule.x !== undefined) pen.moveTo(x.to(rule.x), box.top), pen.lineTo(x.to(rule.x), box.bottom);
  else pen.moveTo(box.left, y.to(rule.y)), pen.lineTo(box.right, y.to(rule.y));
  pen.stroke();
  pen.setLineDash([]);
  if (!rule.text) return;
  pen.fillStyle = inks.ink;
  pen.textAlign = "right";
  pen.textBaseline = "bottom";
  if (rule.x !== undefined) pen.fillText(rule.text, x.to(rule.x) - 3, box.top + 12);
  else pen.fillText(rule.text, box.right - 3, y.to(rule.y) - 2);
}
