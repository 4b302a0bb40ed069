/** Slices from the server (`inspector.handlers.slice_service`). */
import { decoded, parametersOf, type SliceSource } from "./slice.ts";

const ROUTE = "driftscope/slice";

/** What the server says of a request that it refuses. */
interface Refusal {
  detail?: string;
  field?: string;
}

/** Why there is no slice, in words for the reader. */
export function refusalWords(status: number, { detail }: Refusal): string {
  if (status === 404) return detail ?? "There is nothing here.";
  if (status === 409) return "The run has changed. Its views are read again when it has ended.";
  return `The server cannot draw this: ${detail ?? "status " + String(status)}.`;
}

/** Ask the server for slices. It throws where the same request may succeed later. */
export const serverSlices: SliceSource = async (data, query, signal) => {
  const parameters = new URLSearchParams([...Object.entries(data), ...parametersOf(query)]);
  const url = new URL(`${ROUTE}?${String(parameters)}`, document.baseURI);
  const answer = await fetch(url, { signal });
  if (answer.ok) return decoded(await answer.arrayBuffer());
  if (answer.status >= 500) throw new Error(`status ${answer.status}`);
  const refusal = (await answer.json().catch(() => ({}))) as Refusal;
  return { missing: refusalWords(answer.status, refusal) };
};
