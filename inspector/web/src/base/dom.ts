/** Create an element with a class and a text. */
export function make<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  name = "",
  text?: string,
): HTMLElementTagNameMap[K] {
  const out = document.createElement(tag);
  if (name) out.className = name;
  if (text !== undefined) out.textContent = text;
  return out;
}

/** The first descendant that matches; throws an Error if the template lacks it. */
export function part<E extends Element = HTMLElement>(root: ParentNode, selector: string): E {
  const found = root.querySelector<E>(selector);
  if (!found) throw new Error("the template has no " + selector);
  return found;
}

/** Set a node's text unless it is there already, so that live regions are not read again. */
export function write(node: Element, text: string): void {
  if (node.textContent !== text) node.textContent = text;
}

/** Call `redraw` when the colours of the page change: those of the theme, or forced ones. */
export function onRecolour(redraw: () => void): void {
  new MutationObserver(redraw).observe(document.body, { attributeFilter: ["class"] });
  matchMedia("(forced-colors: active)").addEventListener("change", redraw);
}

/** Whether a key is pressed with Ctrl, Alt or Cmd, as for going back: it belongs to the browser. */
export function isShortcut({ ctrlKey, altKey, metaKey }: KeyboardEvent): boolean {
  return ctrlKey || altKey || metaKey;
}

/** Make a box that scrolls reachable by keyboard, and one that does not unreachable. */
export function reachable(box: HTMLElement): void {
  const over = box.scrollHeight > box.clientHeight + 1 || box.scrollWidth > box.clientWidth + 1;
  if (over) box.tabIndex = 0;
  else box.removeAttribute("tabindex");
}
