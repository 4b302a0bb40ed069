import { make } from "./dom.ts";

const TOLD_MS = 1500; // how long the key says whether the text is copied

/**
 * Let a key of the page select the text of a field and copy it. For a moment the key, and a live
 * region beside it, say whether it did: screen readers do not tell the new text of a key.
 */
export function copyOnPress(key: HTMLElement, field: HTMLInputElement): void {
  const name = key.textContent;
  const spoken = make("span", "ds-hidden");
  spoken.role = "status";
  key.before(spoken);
  let told: ReturnType<typeof setTimeout>;
  key.addEventListener("click", () => {
    void copy(field).then((copied) => {
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
async function copy(field: HTMLInputElement): Promise<boolean> {
  field.select();
  try {
    await navigator.clipboard.writeText(field.value);
    return true;
  } catch {
    return document.execCommand("copy"); // eslint-disable-line @typescript-eslint/no-deprecated -- works on pages that are not secure
  }
}
