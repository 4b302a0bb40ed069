/** Does something once in a period at most. What is asked for meanwhile is done when it ends. */
export class Throttle {
  /** Ends the period; undefined if none has begun. */
  private end: ReturnType<typeof setTimeout> | undefined;
  private asked = false;

  /** `act` is what is done; `period` is in milliseconds. */
  constructor(
    private readonly act: () => void,
    private readonly period: number,
  ) {}

  /** Do it now, or at the end of the period. */
  ask(): void {
    if (this.end === undefined) this.now();
    else this.asked = true;
  }

  /** Do it now, in any case. */
  now(): void {
    clearTimeout(this.end);
    this.asked = false;
    this.end = setTimeout(() => {
      this.end = undefined;
      if (this.asked) this.now();
    }, this.period);
    this.act();
  }
}
