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
  /** The server functions of the component; see `answering`. */
  server: Record<string, (...args: unknown[]) => Promise<string>>;
  /** Where the views' data is from; the server by default. */
  slices?: SliceSource;
}

/** What a part of the page says that shows nothing without the server. */
export const UNANSWERED = "The server did not answer. Load the page again.";

/**
 * A component whose server functions reject if the server does not answer. Those that Gradio gives
 * then resolve without a value.
 */
export function answering(component: Component): Component {
  const server: Component["server"] = {};
  for (const [name, ask] of Object.entries(component.server))
    server[name] = async (...given) => {
      const answer = (await ask(...given)) as string | undefined;
      if (answer === undefined) throw new Error(UNANSWERED);
      return answer;
    };
  return { ...component, server };
}
