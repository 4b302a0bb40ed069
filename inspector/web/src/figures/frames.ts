/** Runs the first task of a frame at once and only the last of the others, at the next frame. */
export class OncePerFrame {
  private frame: number | null = null;
  private waiting: (() => void) | null = null;

  run(task: () => void): void {
    if (this.frame !== null) {
      this.waiting = task;
      return;
    }
    this.frame = requestAnimationFrame(() => {
      const { waiting } = this;
      this.frame = this.waiting = null;
      if (waiting) this.run(waiting);
    });
    task();
  }

  /** Forget the task that waits. */
  cancel(): void {
    this.waiting = null;
  }
}
