import { make } from "../base/dom.ts";

/** The entries of a `dl`: a name and a value each. */
export function factNodes(facts: readonly (readonly [string, string])[]): HTMLElement[] {
  return facts.map(([name, value]) => {
    const pair = make("div");
    pair.append(make("dt", "", name), make("dd", "", value));
    return pair;
  });
}
