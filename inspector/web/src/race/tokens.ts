import { cividis, inkOn, rgb } from "../base/colours.ts";
import { make } from "../base/dom.ts";
import { duration } from "../base/format.ts";
import { cellText, quoted } from "../base/pieces.ts";
import type { Lane, StartedLane, Token } from "./lane.ts";

/** What happens in a token grid; a place is an index of the answer, null for none. */
export interface GridEvents {
  /** A token was pointed at, by the mouse or by the keyboard. */
  point: (place: number | null, how: "mouse" | "keys") => void;
  /** A token was chosen; null unpins the token. */
  pin: (place: number | null) => void;
  /** The keyboard has come to the grid (true) or has left it. */
  keys: (here: boolean) => void;
}

/** The cells of a lane's answer. */
export class Grid {
  private lane: StartedLane | null = null;
  private cells: HTMLElement[] = [];
  /** For each cell, what it shows. */
  private keys: string[] = [];
  private selected: number | null = null;
  private pinned: number | null = null;

  constructor(
    private readonly box: HTMLElement,
    private readonly events: GridEvents,
  ) {
    box.addEventListener("pointerover", (event) => {
      const place = this.placeOf(event);
      if (place !== null) events.point(place, "mouse");
    });
    box.addEventListener("pointerleave", () => events.point(null, "mouse"));
    box.addEventListener("click", (event) => {
      const place = this.placeOf(event);
      if (place !== null) events.pin(place);
    });
    box.addEventListener("keydown", (event) => this.key(event));
    box.addEventListener("focus", () => events.keys(box.matches(":focus-visible")));
    box.addEventListener("blur", () => {
      this.select(null);
      events.keys(false);
    });
  }

  private placeOf({ target }: Event): number | null {
    const cell = target instanceof Element ? target.closest<HTMLElement>("[data-i]") : null;
    return cell && this.box.contains(cell) ? Number(cell.dataset.i) : null;
  }

  /** Make the cells of a lane unless they are there already. */
  build(lane: StartedLane): void {
    if (this.lane === lane) return;
    this.lane = lane;
    const { length, block } = lane.start;
    this.cells = [];
    this.keys = [];
    this.pinned = null;
    const blocks: HTMLElement[] = [];
    for (let low = 0; low < length; low += block) {
      const group = make("div", "ds-block");
      group.append(make("span", "ds-block-name", `block ${low / block + 1}`));
      for (let i = low; i < Math.min(low + block, length); i++) {
        const cell = make("span", "ds-cell");
        cell.dataset.i = String(i);
        this.cells.push(cell);
        group.append(cell);
      }
      blocks.push(group);
    }
    this.box.replaceChildren(...blocks);
  }

  /** Draw a frame of the lane next to a frame of the other one. */
  draw(lane: StartedLane, frame: number, other: Lane, otherFrame: number, colour: string): void {
    const end = lane.firstEnd(frame);
    const active = frame < lane.rows.length ? lane.rows[frame].block : -1;
    this.cells.forEach((cell, i) => {
      const token = lane.token(i, frame);
      const rival = other.start ? other.token(i, otherFrame) : null;
      const differs = Boolean(token && rival && token.id !== rival.id);
      const state = cellState(token, i, frame, end, lane.stops);
      const key = [state, token ? token.id : "", differs, colour, active].join();
      if (this.keys[i] === key) return;
      this.keys[i] = key;
      paint(cell, state, token, differs, colour, lane);
      this.mark(i);
    });
    [...this.box.children].forEach((group, i) => group.classList.toggle("ds-active", i === active));
  }

  private mark(place: number | null): void {
    if (place === null) return;
    const cell = this.cells.at(place);
    cell?.classList.toggle("ds-selected", place === this.selected);
    cell?.classList.toggle("ds-pinned", place === this.pinned);
  }

  private select(place: number | null): void {
    const before = this.selected;
    this.selected = place;
    this.mark(before);
    this.mark(place);
  }

  /** The cell of a token; null if it is not drawn. */
  cell(place: number): HTMLElement | null {
    return this.cells.at(place) ?? null;
  }

  /** Mark the pinned token; null for none. */
  pin(place: number | null): void {
    const before = this.pinned;
    this.pinned = place;
    this.mark(before);
    this.mark(place);
  }

  private key(event: KeyboardEvent): void {
    const to = this.keyPlace(event.key);
    if (to !== null) {
      this.select(to);
      this.events.point(to, "keys");
    } else if (event.key === "Enter" && this.selected !== null) this.events.pin(this.selected);
    else if (event.key === "Escape") this.events.pin(null);
    else return;
    event.preventDefault();
  }

  /** The place that a key moves to; null if it is not a key for moving. */
  private keyPlace(key: string): number | null {
    const last = this.cells.length - 1;
    if (last < 0) return null;
    if (key === "Home") return 0;
    if (key === "End") return last;
    const wide = this.columns();
    const moves: Record<string, number> = {
      ArrowRight: 1,
      ArrowLeft: -1,
      ArrowDown: wide,
      ArrowUp: -wide,
    };
    if (!(key in moves)) return null;
    if (this.selected === null) return 0;
    return Math.min(Math.max(this.selected + moves[key], 0), last);
  }

  private columns(): number {
    const top = this.cells[0].offsetTop;
    const below = this.cells.findIndex((cell) => cell.offsetTop > top);
    return below > 0 ? below : this.cells.length;
  }
}

/** The state of a cell: names of its style classes without `ds-`. `end` is the text's end. */
export function cellState(
  token: Token | null,
  place: number,
  frame: number,
  end: number,
  stops: ReadonlySet<number>,
): string {
  if (!token) return place > end ? "mask beyond" : "mask";
  if (token.fixed) return "fixed";
  const fresh = token.row === frame - 1;
  if (stops.has(token.id)) return (place === end ? "end" : "pad") + (fresh ? " new" : "");
  return (fresh ? "new" : "settled") + (place > end ? " beyond" : "");
}

function paint(
  cell: HTMLElement,
  state: string,
  token: Token | null,
  differs: boolean,
  colour: string,
  lane: Lane,
): void {
  const names = state.split(" ").map((name) => "ds-" + name);
  cell.className = ["ds-cell", ...names, differs ? "ds-differs" : ""].join(" ").trim();
  cell.style.cssText = "";
  cell.textContent = token ? tokenLabel(state, token, lane) : "";
  if (!token || token.sure === null) return;
  cell.style.setProperty("--sure", (token.sure * 100).toFixed(0) + "%");
  if (colour !== "confidence") return;
  const shade = cividis(token.sure);
  cell.style.backgroundColor = rgb(shade);
  cell.style.opacity = "1";
  cell.style.color = inkOn(shade);
}

function tokenLabel(state: string, token: Token, lane: Lane): string {
  if (state.startsWith("end")) return "end";
  return state.startsWith("pad") ? "" : cellText(lane.pieces.get(token.id));
}

/** A token of the answer in a frame, in words. */
export function describe(lane: StartedLane, place: number, frame: number): string {
  const head = `${lane.name.toUpperCase()} · token ${place + 1} · `;
  const token = lane.token(place, frame);
  const block = `block ${Math.floor(place / lane.start.block) + 1}`;
  if (!token) return head + "still masked · " + block;
  const text = `${quoted(lane.pieces.get(token.id))} (id ${token.id})`;
  if (token.fixed) return head + text + " · given";
  const sure =
    token.sure === null ? "filled in, no confidence" : "confidence " + token.sure.toFixed(3);
  const when = `unmasked at step ${token.row + 1}, ${duration(lane.clock[token.row + 1])}`;
  return head + text + " · " + sure + " · " + when + " · " + block;
}
