class Grid {
  constructor(box, onPoint, onPin) {
    this.box = box;
    this.cells = [];
    this.keys = [];
    this.selected = -1;
    const place = (event) => {
      const cell = event.target.closest?.("[data-i]");
      return cell && box.contains(cell) ? +cell.dataset.i : -1;
    };
    box.addEventListener("pointerover", (event) => place(event) >= 0 && onPoint(place(event)));
    box.addEventListener("pointerleave", () => onPoint(-1));
    box.addEventListener("click", (event) => place(event) >= 0 && onPin(place(event)));
    box.addEventListener("keydown", (event) => this.key(event, onPoint, onPin));
    box.addEventListener("blur", () => this.select(-1));
  }

  build(lane) {
    const { length, block } = lane.start;
    this.cells = [];
    this.keys = [];
    const blocks = [];
    for (let low = 0; low < length; low += block) {
      const group = make("div", "ds-block");
      group.append(make("span", "ds-block-name", "block " + (low / block + 1)));
      for (let i = low; i < Math.min(low + block, length); i++) {
        const cell = make("span", "ds-cell");
        cell.dataset.i = i;
        this.cells.push(cell);
        group.append(cell);
      }
      blocks.push(group);
    }
    this.box.replaceChildren(...blocks);
  }

  draw(lane, frame, other, otherFrame, colour) {
    const end = lane.firstEnd(frame);
    const active = frame < lane.rows.length && lane.rows[frame] ? lane.rows[frame].block : -1;
    for (let i = 0; i < this.cells.length; i++) {
      const token = lane.token(i, frame);
      const rival = other.start ? other.token(i, otherFrame) : null;
      const differs = Boolean(token && rival && token.id !== rival.id);
      const state = cellState(token, i, frame, end, lane.stops);
      const key = [state, token ? token.id : "", differs, colour, active].join();
      if (this.keys[i] === key) continue;
      this.keys[i] = key;
      paint(this.cells[i], state, token, differs, colour, lane);
    }
    const size = lane.start.block;
    this.box.childNodes.forEach((group, i) => group.classList.toggle("ds-active", i === active && size > 0));
  }

  select(place) {
    if (this.cells[this.selected]) this.cells[this.selected].classList.remove("ds-selected");
    this.selected = place;
    if (this.cells[place]) this.cells[place].classList.add("ds-selected");
  }

  key(event, onPoint, onPin) {
    const wide = this.cells.length ? this.columns() : 1;
    const moves = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: wide, ArrowUp: -wide };
    const last = this.cells.length - 1;
    if (event.key in moves) {
      const from = this.selected < 0 ? (moves[event.key] > 0 ? -1 : 0) : this.selected;
      const step = this.selected < 0 ? 1 : moves[event.key];
      this.select(Math.min(Math.max(from + step, 0), last));
    } else if (event.key === "Home") this.select(0);
    else if (event.key === "End") this.select(last);
    else if (event.key === "Enter" && this.selected >= 0) onPin(this.selected);
    else if (event.key === "Escape") onPin(-1);
    else return;
    event.preventDefault();
    if (this.selected >= 0 && event.key !== "Enter" && event.key !== "Escape") onPoint(this.selected);
  }

  columns() {
    const top = this.cells[0].offsetTop;
    const below = this.cells.findIndex((cell) => cell.offsetTop > top);
    return below > 0 ? below : this.cells.length;
  }
}

function cellState(token, place, frame, end, stops) {
  if (!token) return place > end ? "mask beyond" : "mask";
  if (token.fixed) return "fixed";
  const fresh = token.row === frame - 1 ? " new" : "";
  if (stops.has(token.id)) return (place === end ? "end" : "pad") + fresh;
  return (fresh.trim() || "settled") + (place > end ? " beyond" : "");
}

function paint(cell, state, token, differs, colour, lane) {
  const names = state.split(" ").map((name) => "ds-" + name);
  cell.className = ["ds-cell", ...names, differs ? "ds-differs" : ""].join(" ").trim();
  cell.style.cssText = "";
  if (!token) {
    cell.textContent = "";
    return;
  }
  const label = state.startsWith("end") ? "end" : state.startsWith("pad") ? "" : null;
  cell.textContent = label ?? cellText(lane.pieces.get(token.id));
  if (token.sure === null) return;
  cell.style.setProperty("--sure", (token.sure * 100).toFixed(0) + "%");
  if (colour !== "confidence") return;
  const shade = cividis(token.sure);
  cell.style.backgroundColor = rgb(shade);
  cell.style.opacity = "1";
  cell.style.color = inkOn(shade);
}

function describe(lane, place, frame) {
  const head = lane.name.toUpperCase() + " · token " + (place + 1) + " · ";
  const token = lane.token(place, frame);
  const block = "block " + (Math.floor(place / lane.start.block) + 1);
  if (!token) return head + "still masked · " + block;
  const text = quoted(lane.pieces.get(token.id)) + " (id " + token.id + ")";
  if (token.fixed) return head + text + " · given";
  const sure = token.sure === null ? "filled in, no confidence" : "confidence " + token.sure.toFixed(3);
  const when = "unmasked at step " + (token.row + 1) + ", " + duration(lane.clock[token.row + 1]);
  return head + text + " · " + sure + " · " + when + " · " + block;
}
