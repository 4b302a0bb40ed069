import { copyOnPress } from "../base/clipboard.ts";
import { make } from "../base/dom.ts";
import { headCell, headedTable } from "../base/table.ts";
import { lessonLink, type Lesson } from "./lessons.ts";

const HEADS = ["", "Lesson", "What you know afterwards", "Minutes", "Link"];

/** The name of the teachers' page in links. */
export const TEACHERS = "teachers";

/** How long some lessons take, in words. */
export function minutesWords(lessons: readonly Pick<Lesson, "minutes">[]): string {
  const sum = lessons.reduce((minutes, lesson) => minutes + lesson.minutes, 0);
  return `${lessons.length} lessons, ${sum} minutes together`;
}

/** The page for teachers: the lessons in their order, with goals, minutes and links. */
export function drawTeachers(
  root: HTMLElement,
  lessons: readonly Lesson[],
  open: (lesson: Lesson) => void,
): void {
  const rows = lessons.map((lesson, i) => row(lesson, i, open));
  root.replaceChildren(headedTable(HEADS, rows, "ds-course"));
}

function row(lesson: Lesson, place: number, open: (lesson: Lesson) => void): HTMLElement {
  const line = make("tr");
  const title = headCell("row");
  const key = make("button", "ds-lesson-open", lesson.title);
  key.type = "button";
  key.addEventListener("click", () => open(lesson));
  title.append(key);
  const link = make("td", "ds-link");
  const field = make("input");
  Object.assign(field, { readOnly: true, value: lessonLink(lesson.key) });
  field.ariaLabel = `Link to lesson ${place + 1}`;
  const copy = make("button", "", "Copy");
  copy.type = "button";
  copy.ariaLabel = `Copy the link to lesson ${place + 1}`;
  link.append(field, copy);
  copyOnPress(copy, field);
  const cells = [lesson.goal, String(lesson.minutes)].map((text) => make("td", "", text));
  line.append(make("td", "", String(place + 1)), title, ...cells, link);
  return line;
}
