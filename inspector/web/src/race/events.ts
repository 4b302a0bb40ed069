/** Events by which the components of the page tell each other something; all go to `document`. */

declare global {
  interface DocumentEventMap {
    /** A run, a recording or a branch is over, and the plan is updated. */
    "driftscope-over": CustomEvent<null>;
    /** An import is over, with the run of its run card, if any, which holds no keys of the race. */
    "driftscope-import-over": CustomEvent<null>;
    /** A setting has changed, by hand or by the page. */
    "driftscope-changed": CustomEvent<null>;
    /** The race has started, and asks for the question of the settings and for their plan. */
    "driftscope-asking": CustomEvent<null>;
    /** The question of the settings, that is, of the next run. */
    "driftscope-question": CustomEvent<string>;
    /** Whether the settings can be run. */
    "driftscope-planned": CustomEvent<boolean>;
    /** The lanes on the page, in words, if they are not those of the settings; else empty. */
    "driftscope-standing": CustomEvent<string>;
  }
}

/** Ask for the question of the settings and for their plan, which may have been told before anyone listened. */
export function askQuestion(): void {
  document.dispatchEvent(new CustomEvent("driftscope-asking"));
}

/** Tell the other components the question of the settings. */
export function tellQuestion(detail: string): void {
  document.dispatchEvent(new CustomEvent("driftscope-question", { detail }));
}

/** Tell the other components whether the settings can be run. */
export function tellPlanned(detail: boolean): void {
  document.dispatchEvent(new CustomEvent("driftscope-planned", { detail }));
}

/** Tell the other components which lanes stand on the page. */
export function tellStanding(detail: string): void {
  document.dispatchEvent(new CustomEvent("driftscope-standing", { detail }));
}
