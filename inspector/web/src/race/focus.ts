import { tendDropdowns } from "./dropdown.ts";

/** For each button of a run, the buttons that take the focus when it is disabled, best first. */
const NEXT: Record<string, readonly string[] | undefined> = {
  run: ["pause", "run"],
  pause: ["resume", "run"],
  step: ["step", "run"],
  resume: ["pause", "run"],
  stop: ["run"],
};

type Focusable = HTMLElement & { disabled?: boolean };

function usable(node: Focusable | null): boolean {
  return Boolean(node?.isConnected && !node.disabled && node.checkVisibility());
}

/** Keeps the keyboard's focus near its place when the focused button is disabled. */
export class Focus {
  /** The focused node of the race or of its buttons. */
  private last: Focusable | null = null;
  /** The box of the focused node, and the box that has the focus in place of a node. */
  private from: HTMLElement | null = null;
  private home: HTMLElement | null = null;
  /** The nodes that the focus should go to, best first. */
  private wishes: (Focusable | null)[] = [];
  private watched: HTMLElement | null = null;

  /** `keys` selects the box of the run's buttons; null if the race has none. */
  constructor(
    private readonly root: HTMLElement,
    private readonly keys: string | null,
  ) {
    document.addEventListener("focusin", ({ target }) => this.came(target));
    document.addEventListener("focusout", () => {
      const { last } = this; // a node that a drawing takes away is still there at this moment
      queueMicrotask(() => {
        if (this.last === last && usable(last)) this.last = null;
      });
    });
    if (keys) tendDropdowns();
    this.came(document.activeElement ?? document.body);
  }

  private came(target: EventTarget | null): void {
    if (!(target instanceof HTMLElement)) return;
    const keys = this.keys === null ? null : target.closest<HTMLElement>(this.keys);
    this.from = keys ?? (this.root.contains(target) ? this.root : null);
    this.last = this.from && target;
    if (target === this.home) return;
    this.home = null;
    this.wishes = [target];
    if (!keys) return;
    this.watch(keys);
    const names = NEXT[target.id.replace("ds-", "")] ?? [];
    this.wishes = names.map((name) => keys.querySelector<HTMLElement>("#ds-" + name));
  }

  private watch(keys: HTMLElement): void {
    if (this.watched === keys) return;
    this.watched = keys;
    Object.assign(keys, { tabIndex: -1, role: "group", ariaLabel: "Run, pause and stop" });
    const watch = new MutationObserver(() => this.check());
    watch.observe(keys, { subtree: true, attributeFilter: ["disabled"] });
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
}
