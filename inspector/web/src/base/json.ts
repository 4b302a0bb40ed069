/** The value of a JSON text; null if it is not one, for instance because it is still empty. */
export function readJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}
