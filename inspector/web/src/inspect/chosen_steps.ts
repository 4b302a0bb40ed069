/** Steps that a reader writes as text, such as "1, 13, 20-24". */

const MOST = 64; // the server probes at most so many steps
const LAST = 1_000_000;

/** The steps of a text, from 0 and in order, or what is wrong with it. */
export function chosenSteps(text: string): { steps: number[] } | { fault: string } {
  const parts = text.split(/[\s,;]+/).filter(Boolean);
  const found = new Set<number>();
  for (const part of parts) {
    const match = /^(\d{1,7})(?:[-–](\d{1,7}))?$/.exec(part);
    const low = Number(match?.[1]);
    const high = Number(match?.[2] ?? match?.[1]);
    if (!match || low < 1 || high < low || high > LAST)
      return { fault: `“${part}” is no step. Write steps such as 1, 13, 20-24.` };
    if (high - low >= MOST) return { fault: `At most ${MOST} steps can be probed.` };
    for (let step = low; step <= high; step++) found.add(step - 1);
  }
  if (found.size > MOST) return { fault: `At most ${MOST} steps can be probed.` };
  return { steps: [...found].sort((one, other) => one - other) };
}
