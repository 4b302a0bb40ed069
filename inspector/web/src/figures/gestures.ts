/** Wheel, drag and pinch on a heat map. */
import type { Box } from "./scales.ts";

/** What a heat map does on gestures. Places are in CSS pixels of its drawing. */
export interface GestureActions {
  /** The part of the drawing that has cells; null if nothing is drawn. */
  box: () => Box | null;
  /** Show `factor` times as many cells, and keep those at a place there. */
  zoom: (factor: number, px: number, py: number) => void;
  /** Move the cells by pixels. */
  move: (dx: number, dy: number) => void;
  /** A rectangle is being drawn, from one corner to another; `end`: it is finished. */
  mark: (from: readonly number[], to: readonly number[], end: boolean) => void;
  /** The rectangle is given up. */
  unmark: () => void;
}

interface Drag {
  pointer: number;
  /** Where it began, and where it was last. */
  from: readonly number[];
  last: readonly number[];
  /** It moves the cells; else it draws a rectangle. */
  moves: boolean;
  begun: boolean;
}

interface Pinch {
  distance: number;
  middle: readonly number[];
}

const BEGIN = 4; // CSS pixels from which a press is a drag
const WHEEL = { pixel: 0.01, line: 0.16, most: 0.5 }; // of a doubling

/** How much more is shown after a turn of the wheel. */
export function wheelFactor({
  deltaY,
  deltaMode,
}: Pick<WheelEvent, "deltaY" | "deltaMode">): number {
  const turn = deltaY * (deltaMode ? WHEEL.line : WHEEL.pixel);
  return 2 ** Math.min(Math.max(turn, -WHEEL.most), WHEEL.most);
}

/** Listens to one canvas. The wheel zooms only with Ctrl or Cmd, so that the page scrolls. */
export class Gestures {
  private drag: Drag | null = null;
  private pinch: Pinch | null = null;
  private dragged = false;

  constructor(
    private readonly node: HTMLElement,
    private readonly actions: GestureActions,
  ) {
    const still = { passive: false };
    node.addEventListener("wheel", (event) => this.wheel(event), still);
    node.addEventListener("pointerdown", (event) => this.press(event));
    node.addEventListener("pointermove", (event) => this.moved(event));
    node.addEventListener("pointerup", (event) => this.release(event));
    node.addEventListener("pointercancel", () => this.cancel());
    node.addEventListener("touchstart", (event) => this.touch(event), still);
    node.addEventListener("touchmove", (event) => this.touch(event), still);
    node.addEventListener("touchend", () => (this.pinch = null));
    node.addEventListener("touchcancel", () => (this.pinch = null));
  }

  /** Whether a gesture is under way, so that pointer moves read nothing. */
  get busy(): boolean {
    return Boolean(this.drag?.begun) || this.pinch !== null;
  }

  /** Whether a click, which comes after each drag, is the end of one, so that it chooses nothing. */
  endsDrag(): boolean {
    const ended = this.dragged;
    this.dragged = false;
    return ended;
  }

  private cancel(): void {
    if (this.drag?.begun && !this.drag.moves) this.actions.unmark();
    this.drag = null;
  }

  private place({ clientX, clientY }: { clientX: number; clientY: number }): readonly number[] {
    const { left, top } = this.node.getBoundingClientRect();
    return [clientX - left, clientY - top];
  }

  private wheel(event: WheelEvent): void {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    const [px, py] = this.place(event);
    this.actions.zoom(wheelFactor(event), px, py);
  }

  private press(event: PointerEvent): void {
    this.dragged = false;
    const box = this.actions.box();
    if (event.pointerType === "touch" || event.button !== 0 || !box) return;
    const from = this.place(event);
    const [px, py] = from;
    if (px < box.left || px > box.right || py < box.top || py > box.bottom) return;
    this.drag = { pointer: event.pointerId, from, last: from, moves: event.shiftKey, begun: false };
  }

  private moved(event: PointerEvent): void {
    const { drag } = this;
    if (drag?.pointer !== event.pointerId) return;
    if (!(event.buttons & 1)) {
      this.cancel(); // it was released outside
      return;
    }
    const to = this.place(event);
    const [dx, dy] = [to[0] - drag.last[0], to[1] - drag.last[1]];
    if (!drag.begun && Math.hypot(dx, dy) < BEGIN) return;
    if (!drag.begun) {
      drag.begun = true;
      this.node.setPointerCapture(event.pointerId);
    }
    drag.last = to;
    if (drag.moves) this.actions.move(dx, dy);
    else this.actions.mark(drag.from, to, false);
  }

  private release(event: PointerEvent): void {
    const { drag } = this;
    this.drag = null;
    if (!drag?.begun) return;
    this.dragged = true;
    if (!drag.moves) this.actions.mark(drag.from, this.place(event), true);
  }

  private touch(event: TouchEvent): void {
    if (event.touches.length !== 2) {
      this.pinch = null;
      return;
    }
    event.preventDefault();
    const [one, other] = [this.place(event.touches[0]), this.place(event.touches[1])];
    const middle = [(one[0] + other[0]) / 2, (one[1] + other[1]) / 2];
    const distance = Math.max(Math.hypot(one[0] - other[0], one[1] - other[1]), 1);
    const before = this.pinch;
    this.pinch = { distance, middle };
    if (!before) return;
    this.actions.move(middle[0] - before.middle[0], middle[1] - before.middle[1]);
    this.actions.zoom(before.distance / distance, middle[0], middle[1]);
  }
}
