import { make } from "../base/dom.ts";

/**
 * Write a name and a value each into a `dl`. The same ones are left as they are, so that what the
 * reader has selected stays selected.
 */
export function writeFacts(list: HTMLElement, facts: readonly (readonly [string, string])[]): void {
  const key = JSON.stringify(facts);
  if (list.dataset.key === key) return;
  list.dataset.key = key;
  const pairs = facts.map(([name, value]) => {
    const pair = make("div");
    pair.append(make("dt", "", name), make("dd", "", value));
    return pair;
  });
  list.replaceChildren(...pairs);
}
