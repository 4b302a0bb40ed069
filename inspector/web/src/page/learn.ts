import { copyOnPress } from "../base/clipboard.ts";
import { answering, UNANSWERED, type Component } from "../base/component.ts";
import { make, part, reachable, write } from "../base/dom.ts";
import { browserStorage } from "../base/storage.ts";
import { documentOf } from "../inspect/slice.ts";
import { hasLevel, isMissing } from "../inspect/view.ts";
import { started } from "../race/lane.ts";
import { Race } from "../race/race.ts";
import { installGlossary, termNodes } from "./glossary.ts";
import { LessonCursor } from "./lesson_cursor.ts";
import {
  newestAt,
  stripCells,
  stripWords,
  type Attention,
  stripQuery,
  type StripDrift,
} from "./lesson_strip.ts";
import {
  ASKS,
  lessonLink,
  nameInAddress,
  Progress,
  verdictWords,
  type Choice,
  type Lesson,
  type Place,
  type Verdict,
} from "./lessons.ts";
import { drawStripCells } from "./strip_view.ts";
import { drawTeachers, minutesWords, TEACHERS } from "./teachers.ts";
import { Ticks } from "./ticks.ts";

const NO_ANSWER = "The server did not answer. Choose the lesson again, or load the page again.";
const READING = "The race of this lesson is not here yet. Check again when you see it.";
const HERE = "The race of this lesson is here now. Look at it, then check again.";

/** A lesson with the reader's progress and its entry in the list. */
interface Entry {
  lesson: Lesson;
  progress: Progress;
  key: HTMLButtonElement;
  tick: HTMLElement;
}

/** The sign of a lesson's progress, and its words. */
function tickWords({ done, right }: Progress): [sign: string, words: string] {
  if (right) return ["✓✓", "answered"];
  return done ? ["✓", "done"] : ["", ""];
}

/** The lessons, with a race and its inspector below the text of the lesson. */
export class Learn {
  private readonly board: HTMLElement;
  private readonly race: Race;
  private readonly cursor: LessonCursor;
  private readonly ticks = new Ticks(browserStorage("localStorage"));
  private readonly teachersKey = make("button", "ds-teachers-key", "For teachers");
  private entries: Entry[] = [];
  private now: Entry | null = null;
  /** The race that is shown. */
  private laneB = "";
  /** The cursor at which the lesson was opened; null until its race is shown. */
  private start: string | null = null;
  /** Where the lesson opens; null once its race is shown. */
  private opening: Place | null = null;
  /** Whether the server did not answer when its race was asked for. */
  private unanswered = false;
  private attention: Attention = "bidirectional";
  /** Races that were asked for; an answer to an earlier question is not shown. */
  private asked = 0;
  /** Changes with the reader's answer; the verdict on an earlier one is not said. */
  private given = 0;

  constructor(private readonly component: Component) {
    this.board = part(component.element, "[data-learn]");
    this.race = new Race(component);
    this.cursor = new LessonCursor(this.find("lesson-cursor"), this.race.inspector);
    this.listen();
    void this.open();
  }

  private find<E extends HTMLElement = HTMLElement>(name: string): E {
    return part<E>(this.board, "[data-" + name + "]");
  }

  private stripKeys(): NodeListOf<HTMLElement> {
    return this.board.querySelectorAll("[data-strip]");
  }

  private listen(): void {
    for (const key of this.stripKeys()) key.addEventListener("click", () => this.attend(key));
    this.find("lesson-form").addEventListener("submit", (event) => {
      event.preventDefault();
      void this.judge();
    });
    for (const name of ["lesson-number", "lesson-select"])
      this.find(name).addEventListener("input", () => {
        this.given++;
        this.drawVerdict("ask", "");
      });
    this.find("lesson-next").addEventListener("click", () => {
      const next = this.now && this.entries.at(this.entries.indexOf(this.now) + 1);
      if (next) void this.turnTo(next);
    });
    copyOnPress(this.find("lesson-copy"), this.find<HTMLInputElement>("lesson-link"));
    copyOnPress(this.find("teachers-copy"), this.find<HTMLInputElement>("teachers-link"));
    this.teachersKey.type = "button";
    this.teachersKey.dataset.key = TEACHERS;
    this.teachersKey.addEventListener("click", () => {
      this.openTeachers();
      this.find("teachers-title").focus({ preventScroll: true });
    });
    this.find("forget").addEventListener("click", () => this.forget());
    const problem = this.find("lesson-problem");
    new ResizeObserver(() => reachable(problem)).observe(problem);
    this.race.inspector.watchers.push(() => {
      this.cursor.draw();
      this.drawStrip();
      this.note();
    });
  }

  /** Open the lesson that the page's link names, else the first one. */
  private async open(): Promise<void> {
    const answered = await this.component.server.titles().catch(() => null);
    if (answered === null) {
      this.find("lessons").textContent = UNANSWERED;
      this.find("lesson-box").hidden = true;
      return this.drawRace(false);
    }
    const { lessons } = JSON.parse(answered) as { lessons: Lesson[] };
    this.entries = lessons.map((lesson, i) => this.entry(lesson, i));
    this.find("lessons").append(...this.entries.map(({ key }) => key), this.teachersKey);
    this.drawTeachers();
    const wanted = new URLSearchParams(location.search).get("lesson");
    if (wanted === TEACHERS) return this.openTeachers();
    const linked = this.entries.find(({ lesson }) => lesson.key === wanted);
    await this.enter(linked ?? this.entries[0]);
  }

  private entry(lesson: Lesson, place: number): Entry {
    const key = make("button", "", `${place + 1}. ${lesson.title}`);
    const tick = make("span", "ds-tick");
    key.type = "button";
    key.dataset.key = lesson.key;
    key.append(tick);
    const entry = { lesson, progress: new Progress(), key, tick };
    this.ticks.restore(lesson.key, entry.progress);
    key.addEventListener("click", () => void this.turnTo(entry));
    return entry;
  }

  private turnTo(entry: Entry): Promise<void> {
    const entered = this.enter(entry);
    this.find("lesson-title").focus({ preventScroll: true });
    this.find("lesson-box").scrollIntoView({ block: "nearest" });
    return entered;
  }

  private async enter(entry: Entry): Promise<void> {
    this.leave();
    this.now = entry;
    nameInAddress(entry.lesson.key);
    this.start = null;
    this.unanswered = false;
    this.drawPages();
    this.drawTexts(entry.lesson);
    this.drawMarks();
    const { lesson, progress } = entry;
    this.opening = progress.place ?? {
      laneB: lesson.lane_b,
      cursor: { position: null, ...lesson.start },
      held: false,
      view: lesson.view,
    };
    await this.show(this.opening.laneB);
  }

  private drawTeachers(): void {
    const lessons = this.entries.map(({ lesson }) => lesson);
    this.find("minutes").textContent = minutesWords(lessons);
    this.find<HTMLInputElement>("teachers-link").value = lessonLink(TEACHERS);
    drawTeachers(this.find("teachers-table"), lessons, (lesson) => {
      const entry = this.entries.find((one) => one.lesson === lesson);
      if (entry) void this.turnTo(entry);
    });
  }

  private openTeachers(): void {
    this.leave();
    this.now = null;
    nameInAddress(TEACHERS);
    this.drawPages();
    this.drawMarks();
  }

  /** Show either the lesson with its race, or the page for teachers. */
  private drawPages(): void {
    const teachers = this.now === null;
    this.find("teachers").hidden = !teachers;
    this.find("lesson-box").hidden = teachers;
    this.drawRace(!teachers && this.laneB !== ""); // before the first race there is none to show
  }

  private drawRace(shown: boolean): void {
    part(this.board, ".ds").hidden = !shown;
  }

  /** Forget what was done and answered, for the next reader at this computer. */
  private forget(): void {
    this.ticks.clear();
    for (const entry of this.entries) entry.progress = new Progress();
    if (this.start !== null) {
      this.start = JSON.stringify(this.race.inspector.cursor.pinned);
      this.now?.progress.races.add(this.laneB); // it is still shown
    }
    this.drawMarks();
  }

  /** Keep what the reader leaves, unless the lesson's race was not shown yet. */
  private leave(): void {
    this.given++;
    if (!this.now || this.start === null) return;
    const { cursor, name } = this.race.inspector;
    this.now.progress.place = {
      cursor: { ...cursor.pinned },
      held: cursor.held,
      view: name,
      laneB: this.laneB,
    };
  }

  private drawTexts(lesson: Lesson): void {
    for (const name of ["title", "ask"] as const)
      this.find("lesson-" + name).textContent = lesson[name];
    const linked = new Set<string>();
    for (const name of ["do", "see"] as const)
      this.find("lesson-" + name).replaceChildren(...termNodes(lesson[name], linked));
    const number = this.find<HTMLInputElement>("lesson-number");
    number.hidden = lesson.answer !== "number";
    number.value = "";
    this.find("lesson-select").hidden = lesson.answer !== "choice";
    const options = lesson.choices.map(({ label, name }) => new Option(label, name));
    this.find("lesson-select").replaceChildren(new Option("Choose …", ""), ...options);
    this.find("lesson-strip").hidden = lesson.action !== "strip";
    this.find("lesson-verdict").textContent = "";
    this.find<HTMLInputElement>("lesson-link").value = lessonLink(lesson.key);
    const last = this.entries.at(-1)?.lesson === lesson;
    this.find("lesson-last").hidden = !last;
    this.find("lesson-next").hidden = last;
    this.find("lesson-choices").replaceChildren(
      ...lesson.choices.map((one) => this.choiceKey(one)),
    );
  }

  private choiceKey({ label, name }: Choice): HTMLButtonElement {
    const key = make("button", "ds-play", label);
    key.type = "button";
    key.dataset.choice = name;
    key.addEventListener("click", () => void this.show(name));
    return key;
  }

  /** Show a race of the lesson where the reader is once it has come, the first where it opens. */
  private async show(name: string): Promise<void> {
    const entry = this.now;
    if (!entry) return;
    const turn = ++this.asked;
    const answered = await this.component.server.lesson(entry.lesson.key, name).catch(() => null);
    if (entry !== this.now || turn !== this.asked) return;
    if (answered === null) {
      this.drawRace(this.start !== null); // that of another lesson would mislead
      this.unanswered = true;
      return this.drawVerdict("ask", NO_ANSWER);
    }
    this.drawRace(true);
    this.laneB = name;
    entry.progress.races.add(name);
    for (const key of this.find("lesson-choices").querySelectorAll<HTMLElement>("[data-choice]"))
      key.setAttribute("aria-pressed", String(key.dataset.choice === name));
    const { inspector, store, transport } = this.race;
    const { cursor, held, view } = this.opening ?? {
      cursor: inspector.cursor.pinned,
      held: inspector.cursor.held,
      view: inspector.name,
    };
    const wanted = { ...cursor };
    await this.race.take(answered);
    write(this.find("lesson-problem"), store.question ?? "");
    inspector.open(view);
    inspector.cursor.move(wanted, held);
    const lane = store.lanes[wanted.lane];
    if (lane.start) transport.show(lane, Math.min(wanted.step + 1, lane.rows.length));
    this.start = JSON.stringify(inspector.cursor.pinned);
    this.opening = null;
    this.renewVerdict();
    this.note();
  }

  /** Note what the reader has done. */
  private note(): void {
    if (!this.now || this.start === null) return;
    const { lesson, progress } = this.now;
    const { inspector, store, transport } = this.race;
    progress.noteFrame(transport.frames().a, store.lanes.a.rows.length);
    const slider =
      inspector.panels.counts?.controls.querySelector<HTMLInputElement>('input[type="range"]');
    if (slider) progress.noteThreshold(slider);
    if (JSON.stringify(inspector.cursor.pinned) !== this.start) progress.moved = true;
    if (!progress.complete(lesson, inspector.cursor.held)) return;
    progress.done = true;
    this.drawMarks();
  }

  private drawMarks(): void {
    const done = this.now?.progress.done ?? false;
    this.find("lesson-done").hidden = !done;
    this.board.dataset.lesson = this.now?.lesson.key ?? TEACHERS;
    this.board.dataset.done = done ? "yes" : "";
    this.teachersKey.setAttribute("aria-current", String(this.now === null));
    for (const { key, tick, progress: own, lesson } of this.entries) {
      this.ticks.keep(lesson.key, own);
      key.setAttribute("aria-current", String(lesson === this.now?.lesson));
      const [sign, words] = tickWords(own);
      tick.textContent = sign;
      tick.ariaLabel = words || null;
      tick.role = words ? "img" : null; // a plain span has no label
    }
  }

  private attend(chosen: HTMLElement): void {
    this.attention = chosen.dataset.strip === "causal" ? "causal" : "bidirectional";
    this.now?.progress.attention.add(this.attention);
    for (const key of this.stripKeys()) key.setAttribute("aria-pressed", String(key === chosen));
    this.drawStrip();
    this.note();
  }

  private drawStrip(): void {
    if (this.find("lesson-strip").hidden) return;
    const { inspector, store } = this.race;
    const frame = inspector.frames.a;
    const lane = store.lanes.a;
    if (!frame || !started(lane) || !hasLevel(frame, "layers")) return;
    const { step, layer } = inspector.cursor.pinned;
    const found = inspector.slices.get("a", stripQuery(Math.min(step, frame.steps - 1)));
    if (!found || isMissing(found)) return;
    const drift = documentOf<StripDrift>(found);
    const spot = { step, layer: layer ?? 0 };
    const newest = newestAt(frame, step);
    const cells = newest < 0 ? [] : stripCells(frame, drift, spot, newest, this.attention);
    drawStripCells(this.find("strip-cells"), cells, lane, step);
    this.find("strip-words").ariaLive = this.race.transport.playing ? "off" : "polite";
    write(this.find("strip-words"), stripWords(frame, spot, cells, this.attention));
  }

  private async judge(): Promise<void> {
    if (!this.now) return;
    const turn = ++this.given;
    const { lesson, progress } = this.now;
    const field = lesson.answer === "choice" ? "lesson-select" : "lesson-number";
    const given = this.find<HTMLSelectElement | HTMLInputElement>(field).value.trim();
    const pinned = { ...this.race.inspector.cursor.pinned };
    const empty = lesson.answer === "pin" ? pinned.position === null : !given;
    if (empty) return this.drawVerdict("ask", ASKS[lesson.answer]);
    if (this.start === null) return this.drawVerdict("ask", this.unanswered ? NO_ANSWER : READING);
    const { server } = this.component;
    const answered = await server.check(lesson.key, this.laneB, given, pinned).catch(() => null);
    const said = turn === this.given;
    if (answered === null) return said ? this.drawVerdict("ask", NO_ANSWER) : undefined;
    const verdict = JSON.parse(answered) as Verdict;
    if (said) this.drawVerdict(verdict.right ? "yes" : "no", verdictWords(verdict));
    if (verdict.right) progress.right = true;
    this.drawMarks();
  }

  /** Replace what was said while the race was missing. */
  private renewVerdict(): void {
    const said = this.find("lesson-verdict").textContent;
    if (said === READING) this.drawVerdict("ask", HERE);
    else if (said === NO_ANSWER) this.drawVerdict("ask", "");
  }

  /** Say whether an answer is right, or ask for one. */
  private drawVerdict(right: "yes" | "no" | "ask", words: string): void {
    this.find("lesson-verdict").dataset.right = right;
    this.find("lesson-verdict").textContent = words;
  }
}

/** Start the lessons in their component. */
export function learn(component: Component): Learn {
  installGlossary();
  return new Learn(answering(component));
}
