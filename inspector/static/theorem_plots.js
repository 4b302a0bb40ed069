const SMALL_TYPE = "11px system-ui, sans-serif";
const MONO_TYPE = "12px ui-monospace, Menlo, Consolas, monospace";
const ZONE = { from: 2, to: 6, most: 0.75, row: 34 };

function striped(pen, colour) {
  const tile = document.createElement("canvas");
  tile.width = tile.height = 6;
  const ink = tile.getContext("2d");
  ink.strokeStyle = colour;
  ink.lineWidth = 1.5;
  ink.beginPath();
  for (const shift of [-6, 0, 6]) {
    ink.moveTo(shift - 1, 7);
    ink.lineTo(shift + 7, -1);
  }
  ink.stroke();
  return pen.createPattern(tile, "repeat");
}

function put(pen, text, x, y, { align = "left", base = "middle", ink, font = SMALL_TYPE }) {
  Object.assign(pen, { textAlign: align, textBaseline: base, fillStyle: ink, font });
  pen.fillText(text, x, y);
}

function segment(pen, x1, y1, x2, y2, colour, wide) {
  Object.assign(pen, { strokeStyle: colour, lineWidth: wide });
  pen.beginPath();
  pen.moveTo(x1, y1);
  pen.lineTo(x2, y2);
  pen.stroke();
}

function drawBars(canvas, { listed, bestP, bestQ }, inks) {
  const row = listed.length > 8 ? 28 : listed.length > 4 ? 34 : 46;
  const { pen, width } = surface(canvas, listed.length * row + 22);
  pen.font = MONO_TYPE;
  const left = Math.max(...listed.map(({ name }) => pen.measureText(name).width)) + 10;
  const most = Math.ceil(Math.max(...listed.map(({ p, q }) => Math.max(p, q))) * 10) / 10;
  const box = { left, right: width - 62, bottom: listed.length * row, thick: (row - 6) / 2 };
  const x = (value) => box.left + (value / most) * (box.right - box.left);
  barTicks(pen, box, most, x, inks);
  const stripes = striped(pen, inks.q);
  listed.forEach((outcome, i) => {
    const top = i * row + 3;
    put(pen, outcome.name, box.left - 8, top + box.thick, { align: "right", ink: inks.text, font: MONO_TYPE });
    oneBar(pen, box, top, x(outcome.p), { fill: inks.p, line: inks.p });
    oneBar(pen, box, top + box.thick, x(outcome.q), { fill: stripes, line: inks.q });
    barText(pen, x(outcome.p), top + box.thick / 2, outcome.p, bestP.includes(outcome), inks);
    barText(pen, x(outcome.q), top + box.thick * 1.5, outcome.q, bestQ.includes(outcome), inks);
  });
}

function barTicks(pen, box, most, x, inks) {
  const gap = most > 0.5 ? 0.2 : most > 0.2 ? 0.1 : 0.05;
  for (let i = 0; i * gap <= most + 1e-9; i++) {
    const at = Math.round(x(i * gap)) + 0.5;
    segment(pen, at, 0, at, box.bottom, inks.rule, 1);
    put(pen, String(+(i * gap).toFixed(2)), at, box.bottom + 6, { align: "center", base: "top", ink: inks.soft });
  }
}

function oneBar(pen, box, top, end, { fill, line }) {
  const wide = Math.max(end - box.left, 0);
  pen.fillStyle = fill;
  pen.fillRect(box.left, top, wide, box.thick - 1);
  Object.assign(pen, { strokeStyle: line, lineWidth: 1.5 });
  pen.strokeRect(box.left + 0.5, top + 0.5, Math.max(wide - 1, 0), box.thick - 2);
}

function barText(pen, end, middle, value, best, inks) {
  const font = best ? "bold " + SMALL_TYPE : SMALL_TYPE;
  const text = value.toFixed(3) + (best ? " ★" : "");
  Object.assign(pen, { font, fillStyle: inks.card });
  pen.fillRect(end + 4, middle - 5, pen.measureText(text).width + 4, 10);
  put(pen, text, end + 6, middle, { ink: inks.text, font });
}

function drawZone(canvas, { k, epsilon, safe }, inks) {
  const rows = ZONE.to - ZONE.from + 1;
  const { pen, width } = surface(canvas, rows * ZONE.row + 44);
  const box = { left: 30, right: width - 44, top: 6, bottom: rows * ZONE.row + 6 };
  const x = (value) => box.left + (value / ZONE.most) * (box.right - box.left);
  const y = (tokens) => box.bottom - (tokens - ZONE.from + 1) * ZONE.row;
  for (let i = 0; i <= 7; i++) {
    segment(pen, x(i / 10), box.top, x(i / 10), box.bottom, inks.rule, 1);
    put(pen, String(i / 10), x(i / 10), box.bottom + 6, { align: "center", base: "top", ink: inks.soft });
  }
  put(pen, "ε", box.right, box.bottom + 22, { align: "right", base: "top", ink: inks.soft, font: "bold 12px system-ui, sans-serif" });
  zoneLegend(pen, box.left, box.bottom + 22, inks);
  for (let tokens = ZONE.from; tokens <= ZONE.to; tokens++) zoneRow(pen, tokens, x, y(tokens), box, inks);
  zonePoint(pen, x(epsilon), y(k) + ZONE.row / 2, safe, inks);
}

function zoneLegend(pen, x, y, inks) {
  pen.globalAlpha = 0.28;
  pen.fillStyle = inks.zone;
  pen.fillRect(x, y, 22, 12);
  pen.globalAlpha = 1;
  segment(pen, x + 22, y, x + 22, y + 12, inks.zone, 3);
  put(pen, "guaranteed: (k + 1)ε ≤ 1", x + 30, y, { base: "top", ink: inks.soft });
}

function zoneRow(pen, tokens, x, top, box, inks) {
  const end = x(1 / (tokens + 1));
  pen.globalAlpha = 0.28;
  pen.fillStyle = inks.zone;
  pen.fillRect(box.left, top, end - box.left, ZONE.row);
  pen.globalAlpha = 1;
  segment(pen, box.left, top + ZONE.row, box.right, top + ZONE.row, inks.rule, 1);
  segment(pen, end, top, end, top + ZONE.row, inks.zone, 3);
  const middle = top + ZONE.row / 2;
  put(pen, (tokens === ZONE.to ? "k " : "") + tokens, box.left - 6, middle, { align: "right", ink: inks.soft });
  put(pen, "ε ≤ 1/" + (tokens + 1), box.right + 4, middle, { ink: inks.soft });
}

function zonePoint(pen, x, y, safe, inks) {
  Object.assign(pen, { fillStyle: safe ? inks.text : inks.card, strokeStyle: inks.text, lineWidth: 2 });
  pen.beginPath();
  pen.arc(x, y, 6, 0, 7);
  pen.fill();
  pen.stroke();
  if (safe) return;
  segment(pen, x - 3, y - 3, x + 3, y + 3, inks.text, 2);
  segment(pen, x - 3, y + 3, x + 3, y - 3, inks.text, 2);
}
