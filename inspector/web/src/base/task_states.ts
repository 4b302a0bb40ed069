/** What is said of a batch or a search in each state, unless it has words of its own. */
export const TASK_STATES = {
  new: "Starting.",
  running: "Running.",
  done: "Done.",
  stopped: "Stopped. What was run stays; press Continue for the rest.",
  limit: "Paused. What was run stays; press Continue for the rest.",
  failed: "Failed.",
  refused: "Not run.",
} as const;
