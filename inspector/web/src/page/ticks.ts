import { readJson } from "../base/json.ts";
import { keep } from "../base/storage.ts";
import type { Progress } from "./lessons.ts";

const KEY = "driftscope-lessons";

/** The part of a browser's storage that keeps the ticks. */
export type Storage = Pick<globalThis.Storage, "getItem" | "setItem">;

/** What is kept of a lesson. */
type Tick = Pick<Progress, "done" | "right">;

/** The ticks of the lessons, kept in this browser. Without a storage they last as long as the page. */
export class Ticks {
  private readonly known = new Map<string, Tick>();

  constructor(private readonly storage: Storage | null) {
    for (const [key, tick] of Object.entries(this.read())) {
      const { done, right } = (tick ?? {}) as Partial<Record<keyof Tick, unknown>>;
      this.known.set(key, { done: done === true, right: right === true });
    }
  }

  private read(): Record<string, unknown> {
    try {
      const found = readJson(this.storage?.getItem(KEY) ?? "");
      return typeof found === "object" && found ? (found as Record<string, unknown>) : {};
    } catch {
      return {};
    }
  }

  /** Mark a lesson's progress as it was kept. */
  restore(key: string, progress: Progress): void {
    Object.assign(progress, this.known.get(key));
  }

  /** Keep a lesson's progress beside what the storage has by now, also from other tabs. */
  keep(key: string, { done, right }: Tick): void {
    const before = this.known.get(key) ?? { done: false, right: false };
    if (before.done === done && before.right === right) return;
    this.known.set(key, { done, right });
    keep(this.storage, KEY, JSON.stringify({ ...this.read(), [key]: { done, right } }));
  }

  /** Forget all ticks. */
  clear(): void {
    this.known.clear();
    keep(this.storage, KEY, "{}");
  }
}
