"""Lessons for the page: their texts, their recorded races, and the checks of answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from inspector.files.export import cached_reader
from inspector.handlers.page_handlers import Handlers
from inspector.lessons.lessons import LESSONS, Lesson, described
from inspector.page_data import messages
from inspector.page_data.messages import to_json
from inspector.run_store import RaceRecord


class LessonService:
    """The lessons on the recorded traces of a folder.

    `asked` in the methods below is the untrusted request of the page.
    """

    def __init__(self, handlers: Handlers, folder: Path) -> None:
        self._handlers = handlers
        self._trace = cached_reader(folder)

    def titles(self) -> str:
        """The texts of all lessons as JSON, without their answers."""
        return to_json({"lessons": [described(lesson) for lesson in LESSONS]})

    def lesson(self, asked: Any) -> str:
        """A message with the race of a lesson; `asked` is [key, name of lane B's trace]."""
        try:
            lesson, name = self._asked(asked, 2)[:2]
            names = {"a": lesson.lanes[0], "b": name}
            record = RaceRecord(f"lesson-{lesson.key}-{name}", state="example")
            record.traces = {lane: self._trace(trace) for lane, trace in names.items()}
        except (ValueError, OSError) as error:
            return messages.notice("failed", f"This lesson's recording cannot be shown ({error}).")
        self._handlers.store.put(record)
        return messages.whole(record, self._handlers.form.catalog.title)

    def check(self, asked: Any) -> str:
        """Check an answer; `asked` is [key, name of lane B's trace, answer, pinned cursor].

        Returns the JSON document `{"right": bool, "said": explanation}`.
        """
        try:
            lesson, name, given, pinned = self._asked(asked, 4)
            traces = {"a": self._trace(lesson.lanes[0]), "b": self._trace(name)}
            traces |= {choice: self._trace(choice) for _, choice in lesson.choices}
            right, said = lesson.check(traces, str(given)[:100], _cursor(pinned))
        except (ValueError, OSError) as error:
            return to_json({"right": False, "said": str(error)[:500]})
        return to_json({"right": bool(right), "said": said})

    def _asked(self, asked: Any, size: int) -> tuple[Any, ...]:
        if not isinstance(asked, list) or len(asked) != size:
            raise ValueError(f"lesson: expected a list of {size} values")
        lesson = next((one for one in LESSONS if one.key == asked[0]), None)
        if lesson is None or asked[1] not in _names(lesson):
            raise ValueError("lesson: there is no such lesson")
        return (lesson, *asked[1:])


def _names(lesson: Lesson) -> list[str]:
    return [lesson.lanes[1], *(name for _, name in lesson.choices)]


def _cursor(pinned: Any) -> dict[str, int | None]:
    found = pinned if isinstance(pinned, dict) else {}
    names = ("step", "layer", "position")
    return {n: found[n] if type(found.get(n)) is int and found[n] >= 0 else None for n in names}
