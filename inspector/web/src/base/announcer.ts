import { write } from "./dom.ts";

/** The least time between two announcements, in milliseconds: of progress, and of other news. */
const PROGRESS_EVERY = 10_000;
const NEWS_EVERY = 1000;

/** What is announced. */
export interface News {
  state: string;
  /** Whether its words change all the time while it lasts: it is progress. */
  lasting: boolean;
  /** Whether nothing follows, so that it is said at once. */
  over: boolean;
  /** Makes the words, once they are said. */
  words: () => string;
}

/** The news of a task of the server in a state, of which the page says `words()`. */
export function taskNews(state: string, words: () => string | null): News {
  const lasting = ["new", "running"].includes(state);
  return { state, lasting, over: !lasting, words: () => words() ?? "" };
}

/** Tells screen readers how something stands, in a live region, as rarely as they can follow. */
export class Announcer {
  private spokeAt = 0;
  private state = "";
  private due: ReturnType<typeof setTimeout> | undefined;

  constructor(
    private readonly box: Element,
    private readonly news: () => News,
    private readonly now: () => number = () => performance.now(),
  ) {}

  /** Say how it stands, now or, if it goes on, when the last words are long enough ago. */
  announce(): void {
    const { state, lasting, over, words } = this.news();
    const going = lasting && this.state === state;
    const wait = this.spokeAt + (going ? PROGRESS_EVERY : NEWS_EVERY) - this.now();
    clearTimeout(this.due);
    if (!over && wait > 0) {
      this.due = setTimeout(() => this.announce(), wait);
      return;
    }
    this.spokeAt = this.now();
    this.state = state;
    write(this.box, words());
  }
}
