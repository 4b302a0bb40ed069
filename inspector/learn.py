"""The Learn tab: lessons on recorded runs, their answers checked against the data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gradio as gr

from inspector.export import reader
from inspector.handlers import Handlers, dump
from inspector.lens import Lens
from inspector.lessons import LESSONS, Lesson, described
from inspector.shelf import Record
from inspector.theorem import build_theorem
from inspector.views import messages, theme


class Classroom:
    """The lessons on the traces of a folder; what is asked comes from the page, unchecked."""

    def __init__(self, handlers: Handlers, folder: Path) -> None:
        self._handlers = handlers
        self._trace = reader(folder)

    def titles(self) -> str:
        """All lessons as the page may know them."""
        return dump({"lessons": [described(lesson) for lesson in LESSONS]})

    def lesson(self, asked: Any) -> str:
        """The race of a lesson: `asked` is [key, name of lane B's trace]."""
        try:
            lesson, name = self._asked(asked, 2)[:2]
            names = {"a": lesson.lanes[0], "b": name}
            record = Record(f"lesson-{lesson.key}-{name}", state="example")
            record.traces = {lane: self._trace(trace) for lane, trace in names.items()}
        except (ValueError, OSError) as error:
            return messages.notice("failed", f"This lesson's recording cannot be shown ({error}).")
        self._handlers.shelf.put(record)
        return messages.whole(record, self._handlers.form.words.title)

    def check(self, asked: Any) -> str:
        """Judge an answer: `asked` is [key, lane B's trace, answer, pinned cursor]."""
        try:
            lesson, name, given, pinned = self._asked(asked, 4)
            traces = {"a": self._trace(lesson.lanes[0]), "b": self._trace(name)}
            traces |= {choice: self._trace(choice) for _, choice in lesson.choices}
            right, said = lesson.check(traces, str(given)[:100], _cursor(pinned))
        except (ValueError, OSError) as error:
            return dump({"right": False, "said": str(error)[:500]})
        return dump({"right": bool(right), "said": said})

    def _asked(self, asked: Any, size: int) -> tuple[Any, ...]:
        if not isinstance(asked, list) or len(asked) != size:
            raise ValueError("lesson: asked for in an unknown form")
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


def build_learn(handlers: Handlers, folder: Path) -> None:
    """Components of the tab, on the lesson traces of a folder."""
    room, lens = Classroom(handlers, folder), Lens(handlers)

    def titles(asked: Any) -> str:
        return room.titles()

    def lesson(asked: Any) -> str:
        return room.lesson(asked)

    def check(asked: Any) -> str:
        return room.check(asked)

    def view(asked: Any) -> str:
        return lens.view(asked)

    gr.HTML(
        "", html_template=theme.template("learn"), elem_id="ds-learn",
        server_functions=[titles, lesson, check, view],
        **theme.BARE | {"js_on_load": theme.script("learn")},
    )  # fmt: skip
    gr.Markdown("## When is parallel decoding safe?")
    build_theorem()
