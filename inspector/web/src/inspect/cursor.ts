import type { Lane } from "../race/lane.ts";
import { LANES, type LaneName } from "../race/messages.ts";

/** A place in a run: lane, step, layer and position, counted from 0. */
export interface Spot {
  lane: LaneName;
  step: number;
  /** Null until the number of layers is known. */
  layer: number | null;
  /** Null if no token is chosen. */
  position: number | null;
}

type Lanes = Readonly<Record<LaneName, Lane>>;

/** The cursor that all views share: a pinned spot, and a preview while the pointer hovers. */
export class Cursor {
  readonly pinned: Spot = { lane: "b", step: 0, layer: null, position: null };
  /** Whether the token stays chosen when the pointer leaves it. */
  held = false;
  private preview: Partial<Spot> | null = null;
  /** The lanes of the run before, until it is known whether its pinned token stays. */
  private left: Lanes | null = null;

  constructor(private readonly onMove: (how: "hover" | "move") => void) {}

  /** The spot that the views show. */
  get now(): Readonly<Spot> {
    return this.preview ? { ...this.pinned, ...this.preview } : this.pinned;
  }

  /** Preview a spot; null ends the preview. */
  hover(part: Partial<Spot> | null): void {
    if (!part && !this.preview) return;
    this.preview = part;
    this.onMove("hover");
  }

  /** Move the pinned spot. */
  move(part: Partial<Spot>, held = this.held): void {
    const before = JSON.stringify([this.pinned, this.held]);
    Object.assign(this.pinned, part);
    this.held = held;
    const previewed = this.preview !== null;
    this.preview = null;
    if (JSON.stringify([this.pinned, this.held]) !== before) this.onMove("move");
    else if (previewed) this.onMove("hover");
  }

  /** Set parts of the pinned spot without telling the listener, which follows from its state. */
  settle(part: Partial<Spot>): void {
    Object.assign(this.pinned, part);
  }

  /** Keep the pinned spot within another run, in a layer of it; a token that it lacks is unpinned. */
  enter({ layers, positions }: { layers: number; positions: number }): void {
    const last = Math.max(layers, 1) - 1;
    const layer = Math.min(this.pinned.layer ?? Math.floor((last + 1) / 2), last);
    this.settle({ layer });
    this.preview = null;
    if (this.pinned.position !== null && this.pinned.position >= positions) this.forget();
  }

  /** Another run replaces that of the lanes `before`, whose pinned token `check` may unpin. */
  leave(before: Lanes): void {
    this.left = before;
  }

  /**
   * Unpin the token of the run before if its lane, or the first lane, begins with another prompt in
   * the run of `lanes`, whose lane B starts later.
   */
  check(lanes: Lanes): void {
    const { left, pinned } = this;
    if (!left) return;
    const first = LANES.find((name) => lanes[name].start) ?? pinned.lane;
    const other = [first, pinned.lane].some((name) => {
      const { start } = lanes[name];
      return start && String(start.prompt) !== String(left[name].start?.prompt);
    });
    if (other) this.forget();
    if (other || lanes[pinned.lane].start) this.left = null;
  }

  /** Unpin the token of a run that is no longer shown, without telling the listener. */
  forget(): void {
    this.settle({ position: null });
    this.held = false;
  }

  /** Unpin the token. */
  release(): void {
    this.move({ position: null }, false);
  }
}
