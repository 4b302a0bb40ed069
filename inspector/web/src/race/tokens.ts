import { cividis, inkOn, rgb } from "../base/colours.ts";
import { isShortcut, make } from "../base/dom.ts";
import { chance, duration } from "../base/format.ts";
import { cellText, quoted } from "../base/token_text.ts";
import { Block, LONG_ANSWER } from "./blocks.ts";
import { comparable, type Lane, type StartedLane, type Token } from "./lane.ts";
import type { LaneStart } from "./messages.ts";

const ARROWS = ["ArrowRight", "ArrowLeft", "ArrowDown", "ArrowUp"];

/** What the tokens of a lane are drawn with. */
export interface GridDrawing {
  lane: StartedLane;
  frame: number;
  other: Lane;
  otherFrame: number;
  /** What the tokens are coloured by: `state` or `confidence`. */
  colour: string;
  /** Whether the blocks of a long answer are folded while nothing happens there. */
  folding: boolean;
}

/** What happens in a token grid; a place is an index of the answer, null for none. */
export interface GridEvents {
  /** A token was pointed at, by the mouse or by the keyboard; null: it is no more. */
  point: (place: number | null, how: "mouse" | "keys") => void;
  /** A token was chosen; null unpins the token. */
  pin: (place: number | null) => void;
  /** The keyboard has come to the grid (true) or has left it. */
  keys: (here: boolean) => void;
}

/** The tokens of a block: the place of the first, and their number. */
export interface BlockPlaces {
  from: number;
  places: number;
}

/** The blocks of an answer in order; the first one may begin with tokens of the prompt. */
export function blocksOf(start: Pick<LaneStart, "length" | "block" | "shared">): BlockPlaces[] {
  const { length, block, shared = 0 } = start;
  return Array.from({ length: Math.ceil((length + shared) / block) }, (_, i) => {
    const from = Math.max(i * block - shared, 0);
    return { from, places: Math.min((i + 1) * block - shared, length) - from };
  });
}

/**
 * The place in the line below (`by` 1) or above (-1) another place. A block begins with a line of
 * its own, of `wide` tokens at most; a shorter line gives its last one. The ends of the answer stay.
 */
export function placeAcross(
  blocks: readonly BlockPlaces[],
  place: number,
  wide: number,
  by: 1 | -1,
): number {
  const lines = blocks.flatMap(({ from, places }) =>
    Array.from({ length: Math.ceil(places / wide) }, (_, i) => ({
      from: from + i * wide,
      count: Math.min(wide, places - i * wide),
    })),
  );
  const line = lines.findLastIndex(({ from }) => from <= place);
  const to = lines.at(line + by);
  if (!to || line + by < 0) return place;
  return to.from + Math.min(place - lines[line].from, to.count - 1);
}

/** The cells of a lane's answer. */
export class Grid {
  private lane: StartedLane | null = null;
  private cells: HTMLElement[] = [];
  private blocks: Block[] = [];
  private places: BlockPlaces[] = [];
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
      events.point(null, "keys");
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
    const { length } = lane.start;
    this.keys = [];
    this.selected = this.pinned = null;
    this.cells = Array.from({ length }, (_, i) => {
      const cell = make("span", "ds-cell");
      cell.dataset.i = String(i);
      return cell;
    });
    this.places = blocksOf(lane.start);
    this.blocks = this.places.map(({ from, places }, i) => {
      const own = this.cells.slice(from, from + places);
      return new Block(i, length > LONG_ANSWER, own);
    });
    this.box.replaceChildren(...this.blocks.map(({ root }) => root));
  }

  /** Draw a frame of the lane next to a frame of the other one. */
  draw({ lane, frame, other, otherFrame, colour, folding }: GridDrawing): void {
    const end = lane.firstEnd(frame);
    const active = frame < lane.rows.length ? lane.rows[frame].block : -1;
    const compared = comparable(lane, other);
    this.blocks.forEach((block, index) => {
      const { from, places } = this.places[index];
      const counts = {
        from,
        places,
        revealed: 0,
        fresh: 0,
        differing: 0,
        active: index === active,
      };
      for (let i = from; i < from + places; i++) {
        const token = lane.token(i, frame);
        const rival = compared ? other.token(i, otherFrame) : null;
        const differs = Boolean(token && rival && token.id !== rival.id);
        const state = cellState(token, i, frame, end, lane.stops);
        if (token) counts.revealed++;
        if (token && !token.fixed && token.row === frame - 1) counts.fresh++;
        if (differs) counts.differing++;
        const key = `${state},${token?.id ?? ""},${String(differs)},${colour}`;
        if (this.keys[i] === key) continue;
        this.keys[i] = key;
        paint(this.cells[i], state, token, differs, colour, lane);
        this.mark(i);
      }
      block.draw(lane, counts, end, folding);
    });
  }

  /** Hold open the block of a place, or let it go. */
  private hold(place: number | null, held: boolean): void {
    const { lane } = this;
    if (lane && place !== null) this.blocks.at(blockOf(lane, place))?.hold(held);
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
    this.hold(before, false);
    this.hold(place, true);
    this.mark(before);
    this.mark(place);
  }

  /** Put the keyboard's focus on a token. */
  focus(place: number): void {
    this.box.focus({ preventScroll: true });
    this.select(place);
  }

  /** The cell of a token; null if it is not drawn. */
  cell(place: number): HTMLElement | null {
    return this.cells.at(place) ?? null;
  }

  /** Mark the pinned token; null for none. */
  pin(place: number | null): void {
    const before = this.pinned;
    if (before === place) return;
    this.pinned = place;
    this.hold(before, false);
    this.hold(place, true);
    this.mark(before);
    this.mark(place);
  }

  private key(event: KeyboardEvent): void {
    if (isShortcut(event)) return;
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
    const { selected } = this;
    if (!ARROWS.includes(key)) return null;
    if (selected === null) return 0;
    if (key === "ArrowRight") return Math.min(selected + 1, last);
    if (key === "ArrowLeft") return Math.max(selected - 1, 0);
    return placeAcross(this.places, selected, this.columns(), key === "ArrowDown" ? 1 : -1);
  }

  private columns(): number {
    const { gridTemplateColumns } = getComputedStyle(this.blocks[0].root);
    return gridTemplateColumns.split(" ").length;
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
  const fresh = !token.fixed && token.row === frame - 1;
  if (stops.has(token.id)) return (place === end ? "end" : "pad") + (fresh ? " new" : "");
  if (token.fixed) return "fixed";
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

/** The text of a token in its cell. */
export function tokenLabel(state: string, token: Token, lane: Lane): string {
  if (state.startsWith("end")) return "end";
  return state.startsWith("pad") ? "" : cellText(lane.pieces.get(token.id));
}

/** The number of the block of a place in the answer, from 0. */
function blockOf(lane: StartedLane, place: number): number {
  return Math.floor((place + (lane.start.shared ?? 0)) / lane.start.block);
}

/** A token of the answer in a frame, in words; with its time if that is known. */
export function describe(lane: StartedLane, place: number, frame: number): string {
  const head = `${lane.name.toUpperCase()} · token ${place + 1} · `;
  const token = lane.token(place, frame);
  const block = `block ${blockOf(lane, place) + 1}`;
  if (!token) return head + "still masked · " + block;
  const text = `${quoted(lane.pieces.get(token.id))} (id ${token.id})`;
  if (token.fixed) return `${head}${text} · ${lane.knownWords(place)}`;
  const unsure = lane.foreign ? "confidence not known" : "filled in, no confidence";
  const sure = token.sure === null ? unsure : "confidence " + chance(token.sure);
  const time = lane.timed ? `, ${duration(lane.clock[token.row + 1])}` : "";
  const when = `committed at step ${lane.stepNumber(token.row)}${time}`;
  return head + text + " · " + sure + " · " + when + " · " + block;
}
