/** The new steps of a run that goes on, asked for as fast as the page can draw them. */
import { readJson } from "../base/json.ts";
import type { Lane } from "./lane.ts";
import type { News } from "./messages.ts";
import type { Store } from "./store.ts";

const PERIOD_MS = 125; // between two questions
const REST_MS = 30; // left for everything else on the page after a drawing

/** What following a run needs. */
export interface LiveStepsOptions {
  store: Store;
  /** Ask the server: the run and, by lane, the steps that the page has, or -1 before its start. */
  ask: (run: string, a: number, b: number) => Promise<string>;
  /** Take new steps and draw them. */
  take: (news: News) => Promise<void>;
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

  /**
   * Ask until the run pauses or ends, or the server does not have it. Its next message, if any,
   * follows it again. Nothing happens if it is followed already.
   */
  async follow(): Promise<void> {
    if (this.following) return;
    this.following = true;
    let known = true;
    try {
      while (known && this.running) known = await this.askOnce();
    } catch {
      // The server did not answer.
    } finally {
      this.following = false;
    }
  }

  private get running(): boolean {
    const { store } = this.options;
    return store.state === "running" && !store.pending && store.run !== null;
  }

  /** Ask for the new steps; false if the server does not have the run. */
  private async askOnce(): Promise<boolean> {
    const { store, ask, take } = this.options;
    const now = this.options.now ?? ((): number => performance.now());
    const pause = this.options.pause ?? paused;
    const { run, lanes } = store;
    const begun = now();
    const has = ({ start, rows }: Lane): number => (start ? rows.length : -1);
    const news = readJson(await ask(run!, has(lanes.a), has(lanes.b))) as News | null;
    if (news?.run !== run) return false;
    const some = Object.keys(news.lanes).length > 0;
    if (some && this.running && store.run === run) await take(news);
    await pause(Math.max(PERIOD_MS - (now() - begun), REST_MS));
    return true;
  }
}

function paused(ms: number): Promise<void> {
  return new Promise((done) => setTimeout(done, ms));
}
