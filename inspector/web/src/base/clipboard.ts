const TOLD_MS = 1500; // how long the key says whether the text is copied

/** Let a key select the text of a field and copy it; the key says for a moment whether it did. */
export function copyOnPress(key: HTMLElement, field: HTMLInputElement): void {
  const name = key.textContent;
  let told: ReturnType<typeof setTimeout>;
  key.addEventListener("click", () => {
    void copy(field).then((copied) => {
      key.textContent = copied ? "Copied" : "Not copied";
      clearTimeout(told);
      told = setTimeout(() => (key.textContent = name), TOLD_MS);
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
