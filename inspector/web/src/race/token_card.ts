import { make, write } from "../base/dom.ts";
import { READING } from "../base/unread.ts";
import type { Inspector } from "../inspect/inspector.ts";
import { MASK_AGAIN, type Branch } from "../inspect/inspector_options.ts";
import { rowReason } from "../inspect/row_reason.ts";
import { started } from "./lane.ts";
import type { LaneName } from "./messages.ts";
import { describe } from "./tokens.ts";

const GAP = 6; // pixels between a token and its card

/** A token of a lane: its index in the answer. */
export interface Place {
  lane: LaneName;
  place: number;
}

/** Where a card of a width stands, in a box of a width, under a cell: its left edge. */
export function cardLeft(cell: number, cellWidth: number, card: number, box: number): number {
  return Math.max(Math.min(cell + cellWidth / 2 - card / 2, box - card), 0);
}

/** The card of the token that was chosen in a lane's grid, next to it. */
export class TokenCard {
  place: Place | null = null;
  private readonly node = make("div", "ds-token-card");
  private readonly facts = make("p", "ds-token-facts");
  private readonly where = make("p", "ds-kicker");
  private readonly why = make("p", "ds-token-why");
  private readonly on = make("button", "ds-play");
  private readonly again = make("button", "ds-play", "Mask it again and branch");
  private grid: HTMLElement | null = null;

  /** `onLeave` is called with the token when the reader closes the card. */
  constructor(
    private readonly inspector: Inspector,
    private readonly onLeave: (place: Place) => void,
  ) {
    const shut = make("button", "ds-tool", "✕");
    for (const key of [shut, this.on, this.again]) key.type = "button";
    shut.ariaLabel = "Close the card of this token";
    shut.addEventListener("click", () => this.leave());
    this.on.dataset.branch = "on";
    this.on.addEventListener("click", () => this.branch([]));
    this.again.dataset.branch = "again";
    this.again.addEventListener("click", () => {
      if (this.place) this.branch([[this.place.place, MASK_AGAIN]]);
    });
    const keys = make("p", "ds-token-keys");
    keys.append(this.on, this.again);
    this.node.append(shut, this.facts, this.where, this.why, keys);
    this.node.setAttribute("role", "group");
    this.node.addEventListener("keydown", (event) => {
      if (event.key !== "Escape") return;
      this.leave();
      event.preventDefault();
    });
  }

  /** Open the card after the grid of a lane. */
  open(place: Place, grid: HTMLElement): void {
    this.place = place;
    this.grid = grid;
    grid.after(this.node);
    this.inspector.seen = true;
    this.inspector.load();
  }

  /** Take the card away. */
  close(): void {
    this.place = null;
    this.node.remove();
  }

  private leave(): void {
    const { place } = this;
    this.inspector.cursor.release();
    if (place) this.onLeave(place);
  }

  private branch(edits: Branch["edits"]): void {
    if (!this.place) return;
    const { store, cursor, onBranch } = this.inspector;
    const { lane } = this.place;
    onBranch({ run: store.run, lane, step: cursor.pinned.step, settings: "parent", edits });
    this.close();
  }

  /** Draw the card for a frame of its lane, under the cell of its token. */
  draw(frame: number, cell: HTMLElement | null): void {
    const { place, inspector } = this;
    const lane = place && inspector.store.lanes[place.lane];
    if (!lane || !started(lane)) return;
    const name = place.lane.toUpperCase();
    this.node.ariaLabel = `Token ${place.place + 1} of lane ${name}`;
    write(this.facts, describe(lane, place.place, frame));
    const position = lane.start.prompt.length + place.place;
    const { step } = inspector.follow(place.lane);
    const layer = inspector.cursor.pinned.layer ?? 0;
    write(this.where, `Its row at step ${lane.stepNumber(step)}, layer ${layer + 1}`);
    const row = { step, layer, position };
    const reason = rowReason(inspector, place.lane, row, (query) =>
      inspector.slices.get(place.lane, query),
    );
    write(this.why, reason ?? READING);
    write(this.on, `Branch from before step ${lane.stepNumber(step)}`);
    this.on.disabled = this.again.disabled = inspector.store.busy;
    const causal = inspector.frames[place.lane]?.causal; // such a run cannot be continued
    this.on.hidden = inspector.offline() || Boolean(causal);
    this.again.hidden = this.on.hidden || !lane.canMaskAgain(place.place, step);
    this.move(cell);
  }

  private move(cell: HTMLElement | null): void {
    const { node, grid } = this;
    const box = grid?.parentElement;
    node.classList.toggle("ds-token-card-below", !cell);
    if (!cell || !box) return;
    const [outer, inner] = [box.getBoundingClientRect(), cell.getBoundingClientRect()];
    const left = cardLeft(inner.left - outer.left, inner.width, node.offsetWidth, outer.width);
    node.style.left = `${left}px`;
    node.style.top = `${inner.bottom - outer.top + GAP}px`;
  }
}
