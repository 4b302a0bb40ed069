/** The browser's storages, which a page may not use everywhere. */

/** A storage of this browser; null where a page may not use it, for instance in a frame. */
export function browserStorage(name: "localStorage" | "sessionStorage"): globalThis.Storage | null {
  try {
    return window[name];
  } catch {
    return null;
  }
}

/** Keep a text, unless there is no storage, or it is full or forbidden. */
export function keep(storage: Pick<Storage, "setItem"> | null, key: string, text: string): void {
  try {
    storage?.setItem(key, text);
  } catch {
    // What is not kept lasts as long as the page.
  }
}
