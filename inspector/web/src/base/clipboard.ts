const COPIED_MS = 1500; // how long the key says that the text is copied

/** Let a key copy the text of a field. */
export function copyOnPress(key: HTMLElement, field: HTMLInputElement): void {
  const name = key.textContent;
  key.addEventListener("click", () => {
    void copy(field).then(() => {
      key.textContent = "Copied";
      setTimeout(() => (key.textContent = name), COPIED_MS);
    });
  });
}

async function copy(field: HTMLInputElement): Promise<void> {
  field.select();
  try {
    await navigator.clipboard.writeText(field.value);
  } catch {
    document.execCommand("copy"); // eslint-disable-line @typescript-eslint/no-deprecated -- works on pages that are not secure
  }
}
