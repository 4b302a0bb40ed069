import type { Component } from "../base/component.ts";
import { part, write } from "../base/dom.ts";

/** Shows a note of the server in a live region, so that screen readers tell it when it changes. */
export function note(component: Component): void {
  const box = part(component.element, "[data-note]");
  const show = (): void => write(box, component.props.value);
  component.watch("value", show);
  show();
}
