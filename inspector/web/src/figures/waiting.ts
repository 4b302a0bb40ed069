import { make, write } from "../base/dom.ts";
import { READING } from "../base/unread.ts";

const PATIENCE_MS = 300; // until a figure that has a picture says that it reads another one

/** The note of a figure that waits for its data, or has none. The last picture stays meanwhile. */
export class Waiting {
  readonly note = make("p", "ds-waiting");
  private timer: ReturnType<typeof setTimeout> | null = null;

  /** `root` is marked busy; `drawing` is hidden while there is no picture. */
  constructor(
    private readonly root: HTMLElement,
    private readonly drawing: () => readonly HTMLElement[],
  ) {
    this.note.hidden = true;
  }

  /** The picture is up to date. */
  end(): void {
    this.stop();
    this.root.ariaBusy = "false";
    this.note.hidden = true;
    this.show(true);
  }

  /** The data is on its way. `pictured`: the figure has a picture, if an old one. */
  begin(pictured: boolean): void {
    this.root.ariaBusy = "true";
    this.show(pictured);
    if (!pictured) this.say(READING);
    else this.timer ??= setTimeout(() => this.say(READING), PATIENCE_MS);
  }

  /** There is no data. */
  lack(reason: string): void {
    this.stop();
    this.root.ariaBusy = "false";
    this.show(false);
    this.say(reason);
  }

  private show(shown: boolean): void {
    for (const node of this.drawing()) node.classList.toggle("ds-gone", !shown);
  }

  private say(text: string): void {
    this.note.hidden = false;
    write(this.note, text);
  }

  private stop(): void {
    if (this.timer !== null) clearTimeout(this.timer);
    this.timer = null;
  }
}
