"""Handlers of the tab of many prompts: they run batches and return documents for the page."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, ClassVar

import gradio as gr

from engine.config.spec import RaceSpec, RunSpec
from engine.core.events import StepEvent
from inspector.handlers.page_handlers import Handlers, visitor_id
from inspector.handlers.tasks.task_handlers import TaskHandlers
from inspector.page_data import messages, tokens
from inspector.page_data.messages import to_json
from inspector.page_data.sizes import counted
from inspector.protocol import Batch, Batches

ROWS = 200  # of a request
MAX_QUESTION, MAX_TEXT = 400, 400  # characters of a prompt and of an answer in the table
METHOD = ("unmasker", "cache", "knobs", "steps")  # fields of a kept setting
NO_LIST = "settings: the kept settings are not a JSON list; correct or empty the field"


class BatchHandlers(TaskHandlers[Batch]):
    """The logic behind the tab; one object serves all visitors."""

    kind: ClassVar[str] = "batch"
    tasks: Batches

    def __init__(self, handlers: Handlers, batches: Batches) -> None:
        super().__init__(handlers, batches, batches.count)

    def keep(self, name: Any, kept: Any, values: Any) -> tuple[Any, str]:
        """Add lane B's method to the kept settings; returns their JSON and a note."""
        try:
            rows = _kept_rows(kept)
            spec = self._handlers.form.race(values).b
            title = name.strip() if isinstance(name, str) else ""
            rows.append(_row(title or self._handlers.form.catalog.title(spec.to_dict()), spec))
        except Exception as error:
            return gr.skip(), self._said(error)
        return json.dumps(rows, indent=1), f"Kept as “{rows[-1]['name']}”."

    def starter(self, first: int | None) -> Callable[..., Iterator[list[Any]]]:
        """A handler that runs a new batch, or its `first` prompts."""

        def press(
            request: gr.Request, shown: Any, source: Any, text: Any, family: Any,
            count: Any, shots: Any, seed: Any, lanes: Any, kept: Any, record: Any, values: Any,
        ) -> Iterator[list[Any]]:  # fmt: skip
            try:
                race = self._handlers.form.race(values)
                problems = {"family": family, "count": count, "shots": shots, "seed": seed}
                made = self.tasks.open(
                    self.sources.chosen(visitor_id(request), source, text, problems), race.a,
                    self._settings(race.a, race.b, lanes, kept), str(record),
                )  # fmt: skip
            except Exception as error:
                yield self._refusal(shown, error)
                return
            work = partial(made.run, first=first)
            yield from self._stream(made, visitor_id(request), work, shown)

        return press

    def document(self, task: Batch, events: Sequence[Any] = (), whole: bool = True) -> str:
        """A message of a batch: its progress, what it waits for, and the settings if `whole`."""
        found = task.figures() if whole else task.progress()
        for row in found.get("settings", ()):
            row["title"] = self._handlers.form.catalog.title(row.pop("spec"))
        if events and isinstance(events[-1], StepEvent):
            found["step"] = events[-1].step
        return to_json(found | messages.last_wait(events))

    def rows(self, asked: Any) -> str:
        """Finished runs as JSON: `[batch, first]` is the untrusted request of a client."""
        try:
            batch, first = self._asked(asked)
            rows = batch.rows(first, ROWS)
        except ValueError as error:
            return to_json({"missing": str(error)})
        for row in rows:
            question, before = tokens.question(row.pop("text_of_prompt"))
            row |= {"question": _shortened(question, MAX_QUESTION), "before": before}
            row["text"] = _shortened(row["text"], MAX_TEXT)
        return to_json({"rows": rows, "total": batch.done})

    def aggregates(self, asked: Any) -> str:
        """The aggregates of a batch as JSON: `[batch, 0]` is the untrusted request of a client."""
        try:
            return to_json(self._asked(asked)[0].aggregates())
        except ValueError as error:
            return to_json({"missing": str(error)})

    def _race_of(self, task: Batch, event: gr.EventData) -> tuple[RaceSpec, str | None]:
        prompt, setting = getattr(event, "prompt", None), getattr(event, "setting", None)
        if type(prompt) is not int or type(setting) is not int:
            raise ValueError("batch: name a prompt and a setting by their numbers")
        return task.race(prompt, setting), task.answer(prompt)

    def _settings(self, a: RunSpec, b: RunSpec, lanes: Any, kept: Any) -> list[dict[str, Any]]:
        """The settings that are compared with plain decoding: of the lanes, and those kept."""
        chosen = lanes if isinstance(lanes, list) else []
        rows: list[dict[str, Any]] = []
        for lane, spec in (("a", a), ("b", b)):
            if lane in chosen and not self._is_compared_with(a, spec):
                title = self._handlers.form.catalog.title(spec.to_dict())
                title += f", {counted(spec.steps, 'step')}" if _plain(spec) else ""
                rows.append(_row(title, spec))
        rows += _kept_rows(kept)
        names = [row.get("name") if isinstance(row, dict) else None for row in rows]
        if len(rows) > 1 and names[0] == names[1] and isinstance(rows[1], dict):
            rows[1]["name"] = f"{names[1]} (2)"
        return rows

    def _is_compared_with(self, a: RunSpec, spec: RunSpec) -> bool:
        """Whether a lane runs as the plain decoding that a batch of lane A's settings begins with.

        That is lane A itself if it is plain, else the usual knobs and a token a step.
        """
        if not _plain(spec):
            return False
        parts = self._handlers.form.catalog.parts("unmasker", spec.unmasker)
        usual = {f"{one['name']}.{knob['name']}": knob["default"]
                 for one in parts for knob in one["knobs"]}  # fmt: skip
        steps, knobs = (a.steps, a.knobs) if _plain(a) else (spec.gen_length, {})
        return spec.steps == steps and {**usual, **spec.knobs} == {**usual, **knobs}

    def _asked(self, asked: Any) -> tuple[Batch, int]:
        if not (isinstance(asked, list) and len(asked) == 2 and type(asked[1]) is int):
            raise ValueError("batch: expected its id and the number of a run")
        return self.tasks.get(asked[0]), asked[1]


def _plain(spec: RunSpec) -> bool:
    return (spec.cache, spec.unmasker) == ("none", "quota")


def _row(name: str, spec: RunSpec) -> dict[str, Any]:
    fields = spec.to_dict()
    return {"name": name, **{field: fields[field] for field in METHOD}}


def _kept_rows(kept: Any) -> list[Any]:
    """The kept settings, written as a JSON list."""
    try:
        rows = json.loads(kept) if isinstance(kept, str) and kept.strip() else []
    except (ValueError, RecursionError):
        rows = None
    if not isinstance(rows, list):
        raise ValueError(NO_LIST)
    return rows


def _shortened(text: str, most: int) -> str:
    """A text of at most `most` characters, the last of which shows whether it was cut."""
    return text if len(text) <= most else text[: most - 1] + "…"
