import { make } from "./dom.ts";

const TOLD_MS = 1500; // how long the key says whether the text is copied

/**
 * Let a key of the page copy the text of a field, which it selects, or a text that the page does
 * not show. For a moment the key, and a live region beside it, say whether it did: screen readers
 * do not tell the new text of a key.
 */
export function copyOnPress(key: HTMLElement, source: HTMLInputElement | (() => string)): void {
  const name = key.textContent;
  const spoken = make("span", "ds-hidden");
  spoken.role = "status";
  key.before(spoken);
  let told: ReturnType<typeof setTimeout>;
  key.addEventListener("click", () => {
    const copying = typeof source === "function" ? copyText(source(), key) : copyField(source);
    void copying.then((copied) => {
      key.textContent = spoken.textContent = copied ? "Copied" : "Not copied";
      clearTimeout(told);
      told = setTimeout(() => {
        key.textContent = name;
        spoken.textContent = ""; // so that the same words are told again
      }, TOLD_MS);
    });
  });
}

/** Select and copy the text of a field; whether the browser did. */
async function copyField(field: HTMLInputElement): Promise<boolean> {
  field.select();
  return (await toClipboard(field.value)) || copySelection();
}

/** Copy a text, if need be from a field beside the key; whether the browser did. */
async function copyText(text: string, key: HTMLElement): Promise<boolean> {
  if (await toClipboard(text)) return true;
  const field = make("textarea", "ds-hidden");
  field.value = text;
  key.after(field);
  field.select();
  const copied = copySelection();
  field.remove();
  key.focus({ preventScroll: true });
  return copied;
}

/** Write a text to the clipboard, which a page has only if it is secure; whether it could. */
async function toClipboard(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}

function copySelection(): boolean {
  return document.execCommand("copy"); // eslint-disable-line @typescript-eslint/no-deprecated -- works on pages that are not secure
}
