/** The page's components; Gradio starts each with its element, properties and server functions. */
export { advice } from "./advice/advice.ts";
export { batch } from "./batch/batch.ts";
export { learn } from "./page/learn.ts";
export { methods } from "./page/methods.ts";
export { note } from "./page/note.ts";
export { plan } from "./page/plan.ts";
export { preset } from "./page/preset.ts";
export { theorem } from "./page/theorem.ts";
export { race } from "./race/race.ts";

// The tests compare the sentences of the token card with runs of the engine.
export { decoded, documentOf } from "./inspect/slice.ts";
export { Why } from "./inspect/why.ts";
