import { Announcer, type News } from "../base/announcer.ts";
import { noteWords, stateLabel } from "./head.ts";
import { spokenWait } from "./progress.ts";
import { chips, recordingWait } from "./report.ts";
import type { Store } from "./store.ts";

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
export class RaceAnnouncer {
  private readonly announcer: Announcer;

  constructor(
    box: HTMLElement,
    private readonly store: Store,
    private readonly headline: () => string,
  ) {
    this.announcer = new Announcer(box, () => this.news());
  }

  /** Say how the race stands, now or, if it goes on, when the last words are long enough ago. */
  announce(): void {
    this.announcer.announce();
  }

  private news(): News {
    const { state, live } = this.store;
    return { state, lasting: LASTING.includes(state), over: !live, words: () => this.words() };
  }

  private words(): string {
    const { store } = this;
    const waiting = spokenWait(store.wait);
    const known = store.pending ? [] : [noteWords(store), this.headline(), ...chips(store)];
    // While pending, the store has the race before.
    const details = waiting ? [recordingWait(store), waiting] : known;
    return sentences([stateLabel(store, false), ...details]);
  }
}
