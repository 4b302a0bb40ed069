import type { SliceSource } from "../inspect/slice.ts";

/** What Gradio hands to the script of an HTML component. */
export interface Component {
  /** The component's element, with its template inside. */
  element: HTMLElement;
  /** The component's properties; `value` is a JSON document, `offline` marks the replay file. */
  props: { value: string; offline?: boolean };
  /** Send an event with data to the server. */
  trigger(name: string, data?: unknown): void;
  /** Call `react` whenever a property changes. */
  watch(property: string, react: () => void): void;
  /** The server functions of the component. */
  server: Record<string, (...args: unknown[]) => Promise<string>>;
  /** Where the views' data is from; the server by default. */
  slices?: SliceSource;
}
