import { write } from "../base/dom.ts";
import { noteWords, stateLabel } from "./head.ts";
import { spokenWait } from "./progress.ts";
import { chips } from "./report.ts";
import type { Store } from "./store.ts";

/** The least time between two announcements, in milliseconds: of progress, and of other news. */
const PROGRESS_EVERY = 10_000;
const NEWS_EVERY = 1000;
/** States whose words change all the time. */
const LASTING: readonly string[] = ["running", "lock", "gpu"];

/** Parts of what is said, as sentences; empty ones are left out. */
export function sentences(parts: readonly string[]): string {
  return parts
    .filter(Boolean)
    .map((text) => text.replace(/\.$/, ""))
    .join(". ");
}

/** Tells screen readers how the race stands, in a live region. */
export class Speech {
  private spokeAt = 0;
  private state = "";
  private due: ReturnType<typeof setTimeout> | undefined;

  constructor(
    private readonly box: HTMLElement,
    private readonly store: Store,
    private readonly headline: () => string,
  ) {}

  /** Say how the race stands, now or, if it goes on, when the last words are long enough ago. */
  announce(): void {
    const { store } = this;
    const going = LASTING.includes(store.state) && this.state === store.state;
    const wait = this.spokeAt + (going ? PROGRESS_EVERY : NEWS_EVERY) - performance.now();
    clearTimeout(this.due);
    if (store.live && wait > 0) {
      this.due = setTimeout(() => this.announce(), wait);
      return;
    }
    this.spokeAt = performance.now();
    this.state = store.state;
    write(this.box, this.words());
  }

  private words(): string {
    const { store } = this;
    const waiting = spokenWait(store.wait);
    const known = store.pending ? [] : [noteWords(store), this.headline(), ...chips(store)];
    const details = waiting ? [waiting] : known; // while pending, the store has the race before
    return sentences([stateLabel(store, false), ...details]);
  }
}
