/**
 * Gradio's dropdown opens its list on Tab and on Shift and leaves it open, and it drops the focus
 * on Enter. These listeners make the list leave on Tab and bring the focus back after Enter.
 */

const FIELD = '.gradio-container [role="combobox"]';
const LISTS = '.gradio-container [role="listbox"]';

/** Install the listeners; once for a page. */
export function tendDropdowns(): void {
  document.addEventListener("keydown", (event) => passList(event), true);
  document.addEventListener("keydown", (event) => {
    const { target } = event;
    if (event.key !== "Enter" || !isField(target)) return;
    setTimeout(() => comeBack(target));
  });
}

function isField(target: EventTarget | null): target is HTMLElement {
  return target instanceof HTMLElement && target.closest(FIELD) !== null;
}

function passList(event: KeyboardEvent): void {
  if (!["Tab", "Shift"].includes(event.key) || !isField(event.target)) return;
  event.stopPropagation();
  for (const list of document.querySelectorAll<HTMLElement>(LISTS)) list.tabIndex = -1;
}

function comeBack(field: HTMLElement): void {
  if (document.activeElement !== document.body) return;
  field.focus();
  field.dispatchEvent(new KeyboardEvent("keydown", { key: "Escape", bubbles: true }));
}
