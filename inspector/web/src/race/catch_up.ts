/** Asks the server for the whole race if its messages are missing. */
import { UNANSWERED } from "../base/component.ts";
import { readJson } from "../base/json.ts";
import type { News } from "./messages.ts";
import type { Store } from "./store.ts";

/** What is said of a run whose messages stopped before its end. */
export const BROKEN_OFF = "The run broke off, and the server no longer has it. Run it again.";
/** What is said of a run that is over, if the messages of its recording stopped before its end. */
export const RECORDING_BROKEN_OFF =
  "The recording broke off, and the server no longer has the run. Run it again to record it.";

/** What catching up with the server needs. */
export interface CatchUpOptions {
  store: Store;
  ask: (run: string | null) => Promise<string>;
  /** Take the answer and draw it. */
  take: (news: News) => Promise<void>;
}

/** Brings the run of the last message up to date with what the server has of it. */
export class CatchUp {
  private asking = false;

  constructor(private readonly options: CatchUpOptions) {}

  /** Add missing steps. Nothing happens if they are asked for already. */
  async complete(): Promise<void> {
    if (this.asking) return;
    this.asking = true;
    const answered = await this.ask();
    this.asking = false;
    const { store, take } = this.options;
    if (answered && store.awaits(answered)) await take(store.asKnown(answered));
  }

  /**
   * Take the end of a run, or of its recording, whose messages are over. A run that goes on as far as
   * the page knows has failed if the server does not have it.
   */
  async end(): Promise<void> {
    const run = this.unfinished();
    if (run === null) return;
    const answered = await this.ask();
    if (this.unfinished() !== run) return;
    const { store, take } = this.options;
    if (answered?.run) return take(store.asKnown(answered));
    const gone = store.live ? BROKEN_OFF : RECORDING_BROKEN_OFF;
    await take(store.brokenOff(answered ? gone : UNANSWERED));
  }

  /** The run that, as far as the page knows, goes on or is being recorded. */
  private unfinished(): string | null {
    const { store } = this.options;
    return store.underway ? store.newest : null;
  }

  /** The answer; null if the server gave none. */
  private async ask(): Promise<News | null> {
    const { store, ask } = this.options;
    return readJson(await ask(store.newest).catch(() => "")) as News | null;
  }
}
