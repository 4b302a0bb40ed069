/** The documents of a race's timed runs, which the page reads whole. */
import type { LaneName } from "../race/messages.ts";
import { unpack } from "./arrays.ts";
import type { Ask } from "./inspector_options.ts";
import { PAUSE_MS } from "./slices.ts";

type Document = Record<string, unknown>;

const READ_FAILED = "This could not be read from the server.";

/** Documents by lane and name that were asked for. One that could not be read is not kept. */
export class TimedDocuments {
  private asked = new Map<string, Promise<Document>>();
  private come = new Map<string, Document>();

  /** `again` is called some time after a request failed. */
  constructor(
    private readonly ask: Ask,
    private readonly again: () => void,
  ) {}

  /** Forget all documents: the run or its recording is another one. */
  reset(): void {
    this.asked = new Map();
    this.come = new Map();
  }

  /** A document of a lane; `{missing: reason}` if it cannot be read. */
  fetch(run: string, lane: LaneName, name: string): Promise<Document> {
    const key = lane + "/" + name;
    const { asked, come } = this;
    const known = asked.get(key);
    if (known) return known;
    const coming = this.ask(run, lane, name)
      .then((text) => unpack(JSON.parse(text) as Document))
      .catch(() => {
        asked.delete(key);
        setTimeout(() => {
          if (this.asked === asked) this.again();
        }, PAUSE_MS);
        return { missing: READ_FAILED };
      });
    asked.set(key, coming);
    void coming.then((found) => come.set(key, found));
    return coming;
  }

  /** A document, once it has come; it may be `{missing: reason}`. */
  given(lane: LaneName, name: string): Document | undefined {
    return this.come.get(lane + "/" + name);
  }
}
