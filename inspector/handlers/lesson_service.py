"""Lessons for the page: their texts, their recorded races, and the checks of answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from inspector.files.export import cached_reader
from inspector.handlers.page_handlers import Handlers
from inspector.lessons.lesson_checks import number
from inspector.lessons.lessons import LESSONS, described
from inspector.page_data import messages
from inspector.page_data.messages import to_json
from inspector.protocol import LANES
from inspector.run_store import RaceRecord


class LessonService:
    """The lessons on the recorded traces of a folder.

    All visitors share the records of the races, which stay as long as the app runs. Their ids are
    random as those of other runs: a browser keeps slices by the id of their run, and new recordings
    come with a new start of the app. `asked` in the methods below is the untrusted request of the
    page.
    """

    def __init__(self, handlers: Handlers, folder: Path) -> None:
        self._handlers = handlers
        self._trace = cached_reader(folder)
        self._records: dict[tuple[str, str], RaceRecord] = {}  # by lesson and race

    def titles(self) -> str:
        """The texts of all lessons as JSON, without their answers."""
        return to_json({"lessons": [described(lesson) for lesson in LESSONS]})

    def lesson(self, asked: Any) -> str:
        """A message with a race of a lesson; `asked` is [key, name of the race]."""
        try:
            lesson, name = self._asked(asked, 2)[:2]
            traces = dict(zip(LANES, map(self._trace, lesson.races()[name]), strict=True))
        except (ValueError, OSError) as error:
            return messages.notice("failed", f"This lesson's recording cannot be shown ({error}).")
        made = RaceRecord(state="example", traces=traces)
        record = self._records.setdefault((lesson.key, name), made)
        self._handlers.store.pin(record)
        return messages.whole(record, self._handlers.form.catalog.title)

    def check(self, asked: Any) -> str:
        """Check an answer; `asked` is [key, name of the race, answer, pinned cursor].

        Returns the JSON document `{"right": bool, "said": explanation or hint}`.
        """
        try:
            lesson, name, given, pinned = self._asked(asked, 4)
            lane_a, lane_b = lesson.races()[name]
            if lesson.answer == "number" and number(str(given)[:100]) is None:
                return to_json({"right": False, "said": "Give a number, such as 12 or 3.5."})
            traces = {run: self._trace(run) for run in lesson.runs()}
            traces |= {"a": traces[lane_a], "b": traces[lane_b]}
            right, said = lesson.check(traces, str(given)[:100], _cursor(pinned))
        except IndexError:
            return to_json({"right": False, "said": "Choose a cell of the recording."})
        except (ValueError, OSError) as error:
            return to_json({"right": False, "said": str(error)[:500]})
        return to_json({"right": bool(right), "said": said})

    def _asked(self, asked: Any, size: int) -> tuple[Any, ...]:
        if not isinstance(asked, list) or len(asked) != size:
            raise ValueError(f"lesson: expected a list of {size} values")
        lesson = next((one for one in LESSONS if one.key == asked[0]), None)
        if lesson is None or asked[1] not in [*lesson.races()]:
            raise ValueError("lesson: there is no such lesson")
        return (lesson, *asked[1:])


def _cursor(pinned: Any) -> dict[str, int | None]:
    """Step, layer and position of the cell that is pinned in lane B, which the lessons ask for."""
    found = pinned if isinstance(pinned, dict) and pinned.get("lane") != "a" else {}
    names = ("step", "layer", "position")
    return {n: found[n] if type(found.get(n)) is int and found[n] >= 0 else None for n in names}
