/** The buttons of a piece of work, which Gradio enables and disables. */
export interface Keys {
  /** The id of the box that has them. */
  box: string;
  /** Each one's id is this and its name. */
  prefix: string;
  /** What the box is called. */
  label: string;
  /** For each button, the buttons that take the focus when it is disabled, best first. */
  next: Readonly<Record<string, readonly string[] | undefined>>;
}

type Focusable = HTMLElement & { disabled?: boolean };

export const RACE_KEYS: Keys = {
  box: "ds-buttons",
  prefix: "ds-",
  label: "Run, pause and stop",
  next: {
    run: ["pause", "run"],
    pause: ["resume", "run"],
    step: ["step", "run"],
    resume: ["pause", "run"],
    stop: ["run"],
  },
};

/** The buttons of many prompts (`batch`) or of the advisor (`advice`). */
export function taskKeys(name: "batch" | "advice"): Keys {
  return {
    box: `ds-${name}-buttons`,
    prefix: `ds-${name}-`,
    label: "Run, estimate, continue and stop",
    next: {
      run: ["stop", "run"],
      estimate: ["stop", "estimate"],
      continue: ["stop", "continue", "run"],
      stop: ["continue", "run"],
    },
  };
}

function usable(node: Focusable | null): boolean {
  return Boolean(node?.isConnected && !node.disabled && node.checkVisibility());
}

/**
 * Draw a box again. Nodes with the attribute `name` are the same before and after if its value is:
 * the new node has the focus and the scroll position of the node before.
 */
export function redrawInPlace(box: HTMLElement, name: string, draw: () => void): void {
  const nodes = (): HTMLElement[] => [...box.querySelectorAll<HTMLElement>(`[${name}]`)];
  const scrolled = new Map(nodes().map((node) => [node.getAttribute(name), node.scrollTop]));
  const now = document.activeElement;
  const focused = now && box.contains(now) ? now.getAttribute(name) : null;
  draw();
  for (const node of nodes()) {
    const value = node.getAttribute(name);
    if (value === focused) node.focus({ preventScroll: true });
    const top = scrolled.get(value);
    if (top) node.scrollTop = top;
  }
}

/** Keeps the keyboard's focus near its place when the focused button is disabled. */
export class Focus {
  /** The focused node of the part or of its buttons. */
  private last: Focusable | null = null;
  /** The box of the focused node, and the box that has the focus in place of a node. */
  private from: HTMLElement | null = null;
  private home: HTMLElement | null = null;
  /** The nodes that the focus should go to, best first. */
  private wishes: (Focusable | null)[] = [];
  private watched: HTMLElement | null = null;
  /** Waits until the part is hidden; null unless a race was asked for from it. */
  private leaving: ResizeObserver | null = null;

  /** `root` is a part of the page; `keys` are null if it has none. */
  constructor(
    private readonly root: HTMLElement,
    private readonly keys: Keys | null,
  ) {
    document.addEventListener("focusin", ({ target }) => this.came(target));
    document.addEventListener("focusout", () => {
      const { last } = this; // a node that a drawing takes away is still there at this moment
      queueMicrotask(() => {
        if (this.last === last && usable(last)) this.last = null;
      });
    });
    this.came(document.activeElement ?? document.body);
  }

  private came(target: EventTarget | null): void {
    if (!(target instanceof HTMLElement)) return;
    const box = this.keys && target.closest<HTMLElement>("#" + this.keys.box);
    this.from = box ?? (this.root.contains(target) ? this.root : null);
    this.last = this.from && target;
    if (target === this.home) return;
    this.home = null;
    this.wishes = [target];
    if (!box) return;
    const { prefix, label, next } = this.keys;
    this.watch(box, label);
    const names = next[target.id.replace(prefix, "")] ?? [];
    this.wishes = names.map((name) => box.querySelector<HTMLElement>(`#${prefix}${name}`));
  }

  private watch(box: HTMLElement, ariaLabel: string): void {
    if (this.watched === box) return;
    this.watched = box;
    Object.assign(box, { tabIndex: -1, role: "group", ariaLabel });
    const watch = new MutationObserver(() => this.check());
    watch.observe(box, { subtree: true, attributeFilter: ["disabled"] });
  }

  /** Move the focus if its node cannot have it any more, or if a better node can. */
  check(): void {
    const now = document.activeElement;
    const gone = this.last !== null && !usable(this.last);
    const lost = gone && (now === document.body || now === this.last);
    if (!lost && (!this.home || now !== this.home)) return;
    const next = this.wishes.find((node) => usable(node)) ?? null;
    this.home = next ? null : this.from;
    (next ?? this.home)?.focus({ preventScroll: true });
  }

  /** Give the focus to the race once the focused key that opened its tab is hidden with the part. */
  toRaceOnceHidden(): void {
    this.leaving?.disconnect(); // of a race that was refused
    this.leaving = new ResizeObserver(() => {
      if (this.root.checkVisibility()) return;
      this.leaving?.disconnect();
      const now = document.activeElement;
      const lost = !now || now === document.body || !now.checkVisibility();
      if (lost) document.querySelector<HTMLElement>("#ds-race .ds")?.focus({ preventScroll: true });
    });
    this.leaving.observe(this.root);
  }
}
