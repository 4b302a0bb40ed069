/** The new steps of a run that goes on, asked for as fast as the page can draw them. */
import type { Lane } from "./lane.ts";
import type { Store } from "./store.ts";

const PERIOD_MS = 125; // between two questions
const REST_MS = 30; // left for everything else on the page after a drawing

/** What following a run needs. */
export interface LiveStepsOptions {
  store: Store;
  /** Ask the server: the run and, by lane, the steps that the page has, or -1 before its start. */
  ask: (run: string, a: number, b: number) => Promise<string>;
  /** Take the answer and draw it. */
  take: (text: string) => Promise<void>;
  pause?: (ms: number) => Promise<void>;
  now?: () => number;
}

/**
 * Follows a run between the messages of the server.
 *
 * Gradio spends tens of milliseconds of the page's time on every message of a handler, so those are
 * few. A question here costs a request, and the next one is not sent before the last answer is
 * drawn, so a slow page gets fewer and larger answers and never falls behind.
 */
export class LiveSteps {
  private following = false;

  constructor(private readonly options: LiveStepsOptions) {}

  /** Ask until the run pauses or ends. Nothing happens if it is followed already. */
  async follow(): Promise<void> {
    if (this.following) return;
    this.following = true;
    try {
      while (this.running) await this.askOnce();
    } catch {
      // The server did not answer. Its next message, if any, follows the run again.
    } finally {
      this.following = false;
    }
  }

  private get running(): boolean {
    const { store } = this.options;
    return store.state === "running" && !store.pending && store.run !== null;
  }

  private async askOnce(): Promise<void> {
    const { store, ask, take } = this.options;
    const now = this.options.now ?? ((): number => performance.now());
    const pause = this.options.pause ?? paused;
    const { run, lanes } = store;
    const begun = now();
    const has = ({ start, rows }: Lane): number => (start ? rows.length : -1);
    const text = await ask(run!, has(lanes.a), has(lanes.b));
    if (this.running && store.run === run) await take(text);
    await pause(Math.max(PERIOD_MS - (now() - begun), REST_MS));
  }
}

function paused(ms: number): Promise<void> {
  return new Promise((done) => setTimeout(done, ms));
}
