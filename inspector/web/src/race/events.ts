/** Events by which the components of the page tell each other something; all go to `document`. */

/** The part of a link that the inspector adds: the cursor and the view, each empty if at rest. */
export interface Look {
  cursor: string;
  look: string;
}

declare global {
  interface DocumentEventMap {
    /** A run, a recording or a branch is over, and the plan is updated. */
    "driftscope-over": CustomEvent<null>;
    /** The race has started, and asks for the question of the settings. */
    "driftscope-asking": CustomEvent<null>;
    /** The question of the settings, that is, of the next run. */
    "driftscope-question": CustomEvent<string>;
    /** The inspector shows another place or another view. */
    "driftscope-look": CustomEvent<Look>;
  }
}

/** Ask for the question of the settings, which may have been told before anyone listened. */
export function askQuestion(): void {
  document.dispatchEvent(new CustomEvent("driftscope-asking"));
}

/** Tell the other components the question of the settings. */
export function tellQuestion(detail: string): void {
  document.dispatchEvent(new CustomEvent("driftscope-question", { detail }));
}

/** Tell the other components what the inspector shows. */
export function tellLook(detail: Look): void {
  document.dispatchEvent(new CustomEvent("driftscope-look", { detail }));
}
