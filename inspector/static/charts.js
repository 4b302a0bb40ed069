function surface(canvas, height) {
  const { paddingLeft, paddingRight } = getComputedStyle(canvas.parentElement);
  const width = Math.max(canvas.parentElement.clientWidth - parseFloat(paddingLeft) - parseFloat(paddingRight), 40);
  const dense = window.devicePixelRatio || 1;
  const size = [Math.round(width * dense), Math.round(height * dense)];
  if (canvas.width !== size[0] || canvas.height !== size[1]) [canvas.width, canvas.height] = size;
  canvas.style.height = height + "px";
  const pen = canvas.getContext("2d");
  pen.setTransform(dense, 0, 0, dense, 0, 0);
  pen.clearRect(0, 0, width, height);
  pen.font = "11px system-ui, sans-serif";
  return { pen, width, height };
}

function inks(canvas) {
  const style = getComputedStyle(canvas);
  const read = (name) => style.getPropertyValue(name).trim();
  return { ink: read("--ds-soft"), rule: read("--ds-rule"), a: read("--ds-a"), b: read("--ds-b"), mask: read("--ds-mask") };
}

function raceName(store, frames) {
  const told = store.started.map((lane) => {
    const frame = frames[lane.name];
    const when = store.timed ? ", " + duration(lane.clock[frame]) : "";
    return lane.name.toUpperCase() + " " + lane.shown[frame] + " of " + lane.at.length + " after " + plural(frame, "step") + when;
  });
  return ["Tokens revealed, both lanes", ...told].join("; ");
}

function mapName(lane, frame) {
  const places = lane.rows[frame - 1]?.places || [];
  const last = places.length ? "; at step " + frame + " token " + places.map((place) => place + 1).join(", ") : "";
  return "Lane " + lane.name.toUpperCase() + ": step by position, coloured by confidence" + last;
}

function drawRace(canvas, store, frames) {
  canvas.ariaLabel = raceName(store, frames);
  const { pen, width, height } = surface(canvas, 150);
  const colours = inks(canvas);
  const box = { left: 34, right: width - 10, top: 12, bottom: height - 20 };
  const mode = store.timed ? "time" : "step";
  const time = store.extent(mode) || 1;
  const most = Math.max(1, ...store.started.map((lane) => lane.at.length));
  const x = (ms) => box.left + (ms / time) * (box.right - box.left);
  const y = (n) => box.bottom - (n / most) * (box.bottom - box.top);
  axes(pen, box, colours, most, store.timed ? duration(time) : plural(time, "step"));
  for (const lane of store.started) {
    const at = (frame) => x(store.timed ? lane.clock[frame] : frame);
    drawLine(pen, lane, at, y, colours[lane.name], frames[lane.name]);
  }
}

function axes(pen, box, colours, most, extent) {
  pen.strokeStyle = colours.rule;
  pen.lineWidth = 1;
  pen.strokeRect(box.left + 0.5, box.top + 0.5, box.right - box.left, box.bottom - box.top);
  pen.fillStyle = colours.ink;
  pen.textBaseline = "middle";
  pen.textAlign = "right";
  pen.fillText(String(most), box.left - 5, box.top + 4);
  pen.fillText("0", box.left - 5, box.bottom - 2);
  pen.textBaseline = "top";
  pen.fillText(extent, box.right, box.bottom + 5);
  pen.textAlign = "left";
  pen.fillText("0", box.left, box.bottom + 5);
}

function drawLine(pen, lane, x, y, colour, frame) {
  const path = (count) => {
    pen.beginPath();
    pen.moveTo(x(0), y(0));
    for (let i = 1; i <= count; i++) {
      pen.lineTo(x(i), y(lane.shown[i - 1]));
      pen.lineTo(x(i), y(lane.shown[i]));
    }
    pen.stroke();
  };
  pen.strokeStyle = colour;
  pen.setLineDash(lane.name === "a" ? [] : [6, 3]);
  pen.lineWidth = 1;
  pen.globalAlpha = 0.35;
  path(lane.rows.length);
  pen.globalAlpha = 1;
  pen.lineWidth = 2.5;
  path(frame);
  pen.setLineDash([]);
  const [px, py] = [x(frame), y(lane.shown[frame])];
  pen.fillStyle = colour;
  pen.beginPath();
  pen.arc(px, py, 4, 0, 7);
  pen.fill();
  const flip = px > pen.canvas.clientWidth - 40;
  pen.textAlign = flip ? "right" : "left";
  pen.textBaseline = "bottom";
  pen.font = "bold 12px system-ui, sans-serif";
  pen.fillText(lane.name.toUpperCase(), px + (flip ? -8 : 8), Math.max(py + 4, 14));
  pen.font = "11px system-ui, sans-serif";
}

function drawMap(canvas, lane, frame, mostSteps) {
  canvas.ariaLabel = mapName(lane, frame);
  const { pen, width, height } = surface(canvas, 150);
  const colours = inks(canvas);
  const box = { left: 34, right: width - 10, top: 12, bottom: height - 20 };
  const length = lane.at.length || 1;
  const steps = Math.max(mostSteps, 1);
  const cell = [(box.right - box.left) / length, (box.bottom - box.top) / steps];
  pen.fillStyle = colours.mask;
  pen.fillRect(box.left, box.top, box.right - box.left, box.bottom - box.top);
  mapLines(pen, lane, box, colours, cell[0]);
  for (let i = 0; i < lane.at.length; i++) {
    const token = lane.token(i, frame);
    if (!token || token.fixed) continue;
    pen.fillStyle = token.sure === null ? colours.ink : rgb(cividis(token.sure));
    const left = box.left + i * cell[0];
    const top = box.top + token.row * cell[1];
    pen.fillRect(left, top, Math.max(cell[0], 1.5), Math.max(cell[1], 2.5));
  }
  pen.strokeStyle = colours[lane.name];
  const now = box.top + frame * cell[1];
  pen.beginPath();
  pen.moveTo(box.left, now);
  pen.lineTo(box.right, now);
  pen.stroke();
  mapText(pen, box, colours, length, steps);
}

function mapLines(pen, lane, box, colours, wide) {
  pen.strokeStyle = colours.rule;
  pen.lineWidth = 1;
  const block = lane.start ? lane.start.block : lane.at.length;
  for (let i = 0; i <= lane.at.length && block; i += block) {
    const at = Math.round(box.left + i * wide) + 0.5;
    pen.beginPath();
    pen.moveTo(at, box.top);
    pen.lineTo(at, box.bottom);
    pen.stroke();
  }
}

function mapText(pen, box, colours, length, steps) {
  pen.fillStyle = colours.ink;
  pen.textAlign = "right";
  pen.textBaseline = "middle";
  pen.fillText("1", box.left - 5, box.top + 4);
  pen.fillText(String(steps), box.left - 5, box.bottom - 4);
  pen.textBaseline = "top";
  pen.fillText("token " + length, box.right, box.bottom + 5);
  pen.textAlign = "left";
  pen.fillText("1  (step downwards)", box.left, box.bottom + 5);
}
