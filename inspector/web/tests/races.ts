/** Small races, written by hand. */
import type { LaneEnd, LaneStart, News, RowMessage, Summary } from "../src/race/messages.ts";
import { Store } from "../src/race/store.ts";

/** The id of the end of the text. */
export const END = 99;

/** The start of a lane with an answer of four tokens in blocks of two. */
export function laneStart(changes: Partial<LaneStart> = {}): LaneStart {
  return {
    title: "a lane",
    before: 0,
    branch: null,
    prompt: [1, 2, 3],
    canvas: {},
    given: [],
    length: 4,
    answer: 4,
    block: 2,
    record: "off",
    mask: null,
    stop: [END],
    model: "tiny",
    environment: "a machine",
    vocabulary: "",
    memory: "",
    lacks: [],
    ...changes,
  };
}

/** Steps of 10 ms and one forward each; `places` has the answer tokens that each commits. */
export function steps(...places: number[][]): RowMessage[] {
  let left = 4;
  return places.map((own, step) => {
    left -= own.length;
    return [step, 0, 1, 6, 1, left, 10, own.flatMap((place) => [place, 10 + place, 500])];
  });
}

/** The end of a lane. */
export function laneEnd(changes: Partial<LaneEnd> = {}): LaneEnd {
  return { reason: "done", message: "", text: "", metrics: {}, ...changes };
}

/** A message that starts race `run` with the steps of its lanes. */
export function raceNews(a: RowMessage[], b: RowMessage[], changes: Partial<News> = {}): News {
  const lanes = {
    a: { start: laneStart(), rows: a },
    b: { start: laneStart({ title: "another lane" }), rows: b },
  };
  return { run: "run", state: "running", reset: true, lanes, ...changes };
}

/** A race with the steps of both lanes. */
export function raceOf(a: RowMessage[], b: RowMessage[], changes: Partial<News> = {}): Store {
  const store = new Store();
  store.take(raceNews(a, b, changes));
  return store;
}

/** The summary of a race with right and equal answers, in which lane B is twice as fast. */
export function summaryOf(changes: Partial<Summary> = {}): Summary {
  return {
    speedup: 2,
    text_speedup: null,
    forwards: [32, 16],
    text_forwards: [null, null],
    end_of_text: ["official", "official"],
    expected: "45",
    numbers: ["45", "45"],
    right: [true, true],
    agreement: 1,
    first_divergence: null,
    same_text: true,
    same_answer: true,
    apart: "",
    same_vocabulary: true,
    ...changes,
  };
}

/** A finished race with a summary. */
export function finished(changes: Partial<Summary> = {}): Store {
  const store = raceOf(steps([0]), steps([0]), { state: "done", summary: summaryOf(changes) });
  for (const lane of store.started) lane.end = laneEnd();
  return store;
}
