/** The slices of a run that are loaded, or on their way. */
import type { LaneName } from "../race/messages.ts";
import { parametersOf, sizeOf, type Query, type Slice, type SliceSource } from "./slice.ts";
import { isMissing, type Missing } from "./view.ts";

/** A slice that was asked for. */
interface Entry {
  lane: LaneName;
  query: Query;
  found?: Slice | Missing;
  /** Aborts the request that is under way. */
  abort?: AbortController;
  /** The drawing that asked for it last; 0 if it was only asked for ahead of time. */
  drawing: number;
  /** When a failed request may be repeated, in milliseconds. */
  again?: number;
}

/** What the slices need. */
export interface SlicesOptions {
  source: SliceSource;
  /** Called when a slice has come. */
  onCome: () => void;
  /** The most bytes that are kept. */
  budget?: number;
  /** The most requests at a time. */
  atOnce?: number;
  now?: () => number;
  /** Milliseconds after a drawing until slices are asked for ahead of time. */
  patience?: number;
}

const BUDGET = 96_000_000;
const AT_ONCE = 4;
const PATIENCE_MS = 250;
export const PAUSE_MS = 3000; // after a request that failed
const READ_FAILED =
  "This could not be read from the server. It is asked for again in a few seconds.";

/**
 * Slices by lane and query. `get` gives a slice that is loaded, or asks for it. The wish that came
 * last is sent first; wishes that the last drawing did not repeat are dropped before they are sent.
 * The least recently used slices are dropped beyond a budget of bytes.
 */
export class Slices {
  private entries = new Map<string, Entry>();
  private data = { run: "", version: "" };
  private drawing = 1;
  private held = 0;
  private running = 0;
  /** What may be needed next. */
  private wishes: (readonly [LaneName, Query])[] = [];
  private timer: ReturnType<typeof setTimeout> | null = null;
  private readonly patience: number;
  private readonly source: SliceSource;
  private readonly onCome: () => void;
  private readonly budget: number;
  private readonly atOnce: number;
  private readonly now: () => number;

  constructor({ source, onCome, budget, atOnce, now, patience }: SlicesOptions) {
    this.patience = patience ?? PATIENCE_MS;
    this.source = source;
    this.onCome = onCome;
    this.budget = budget ?? BUDGET;
    this.atOnce = atOnce ?? AT_ONCE;
    this.now = now ?? ((): number => Date.now());
  }

  /** Bytes of all slices that are kept. */
  get bytes(): number {
    return this.held;
  }

  /** Read from another run, or another version of it: all that was asked for is forgotten. */
  reset(run: string, version: string): void {
    for (const { abort } of this.entries.values()) abort?.abort();
    this.entries = new Map();
    this.data = { run, version };
    this.held = 0;
  }

  /** A slice, or why there is none; undefined while it is on its way. */
  get(lane: LaneName, query: Query): Slice | Missing | undefined {
    const entry = this.entryOf(lane, query);
    entry.drawing = this.drawing;
    this.send();
    return entry.found;
  }

  /** Ask for a slice that may be needed next, once nothing is drawn or read for a while. */
  ahead(lane: LaneName, query: Query): void {
    this.wishes.push([lane, query]);
    this.timer ??= setTimeout(() => this.sendAhead(), this.patience);
  }

  private sendAhead(): void {
    this.timer = null;
    if (this.running) return;
    for (const [lane, query] of this.wishes) this.entryOf(lane, query);
    this.wishes = [];
    this.send();
  }

  private entryOf(lane: LaneName, query: Query): Entry {
    const key = JSON.stringify([lane, parametersOf(query)]);
    let entry = this.entries.get(key);
    if (entry?.again !== undefined && this.now() >= entry.again) entry = undefined;
    entry ??= { lane, query, drawing: 0 };
    this.entries.delete(key); // the entries are in the order of their use
    this.entries.set(key, entry);
    return entry;
  }

  /** A drawing begins: what the last one did not ask for is no longer needed. */
  begin(): void {
    this.drawing++;
    this.wishes = [];
    if (this.timer !== null) clearTimeout(this.timer);
    this.timer = null;
  }

  /** A drawing ends: wishes of earlier ones that were not sent are dropped. */
  end(): void {
    for (const [key, entry] of this.entries) {
      const sent = entry.found ?? entry.abort;
      const wanted = entry.drawing === this.drawing || entry.drawing === 0;
      if (!sent && !wanted) this.entries.delete(key);
    }
  }

  /** Abort the requests that the last drawing did not repeat: another view is open. */
  supersede(): void {
    for (const [key, entry] of this.entries) {
      if (entry.found || entry.drawing === this.drawing) continue;
      entry.abort?.abort();
      this.entries.delete(key);
    }
  }

  private send(): void {
    while (this.running < this.atOnce) {
      const next = this.next();
      if (!next) return;
      void this.ask(next);
    }
  }

  /** The wish that came last; one that was asked for ahead of time only if there is no other. */
  private next(): Entry | undefined {
    const open = [...this.entries.values()].filter((entry) => !entry.found && !entry.abort);
    return open.findLast((entry) => entry.drawing) ?? open.at(-1);
  }

  private async ask(entry: Entry): Promise<void> {
    const abort = new AbortController();
    entry.abort = abort;
    this.running++;
    let found: Slice | Missing;
    try {
      found = await this.source({ ...this.data, lane: entry.lane }, entry.query, abort.signal);
    } catch {
      found = { missing: READ_FAILED };
      entry.again = this.now() + PAUSE_MS;
      if (!abort.signal.aborted) setTimeout(this.onCome, PAUSE_MS);
    }
    this.running--;
    if (!abort.signal.aborted) this.take(entry, found);
    this.send();
  }

  private take(entry: Entry, found: Slice | Missing): void {
    entry.found = found;
    entry.abort = undefined;
    if (!isMissing(found)) this.held += sizeOf(found);
    this.shrink(entry);
    this.onCome();
  }

  /** Drop the slices that were used least recently, beyond the budget; not those just drawn. */
  private shrink(fresh: Entry): void {
    for (const [key, entry] of this.entries) {
      if (this.held <= this.budget) return;
      if (!entry.found || entry === fresh || entry.drawing === this.drawing) continue;
      if (!isMissing(entry.found)) this.held -= sizeOf(entry.found);
      this.entries.delete(key);
    }
  }
}
