"""Handlers that a tab of batches and one of searches share: they run a task in parts."""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any, ClassVar, Generic, TypeVar

import gradio as gr

from engine.config.spec import RaceSpec
from inspector.handlers.page_handlers import MAX_HZ, Handlers, error_text, visitor_id
from inspector.handlers.tasks.prompt_sources import Count, PromptSources
from inspector.page_data.messages import to_json
from inspector.page_data.plan import race_plans
from inspector.protocol import Task, Tasks
from inspector.run_store import LiveRuns
from inspector.server.throttle import coalesce

ELSEWHERE = "It runs in another tab; this tab does not follow it. Load the page again for news."
WHOLE_S = 2.0  # between two messages with all figures while a task runs
BUTTONS = ("run", "estimate", "continue", "stop")
T = TypeVar("T", bound=Task)


class TaskHandlers(ABC, Generic[T]):
    """The logic behind a tab that runs tasks of one kind; one object serves all visitors.

    `kind` is the key of a task's id in documents and events, `empty` what a document says without a
    task. `count` gives the numbers of prompts and known answers of a source (`PromptSources`).
    """

    kind: ClassVar[str]
    empty: ClassVar[Mapping[str, Any]] = {"done": 0, "total": 0, "seconds_left": None}

    def __init__(self, handlers: Handlers, tasks: Tasks[T], count: Count) -> None:
        self.tasks = tasks
        self.sources = PromptSources(count, handlers.uploads)
        self._handlers = handlers
        self._live = LiveRuns()

    @abstractmethod
    def document(self, task: T, events: Sequence[Any] = (), whole: bool = True) -> str:
        """A message of a task after `events`: its progress, and all figures if `whole`."""

    @abstractmethod
    def _race_of(self, task: T, event: gr.EventData) -> tuple[RaceSpec, str | None]:
        """The race that a click asks for, and the right answer to its prompt, if it is known."""

    def go_on(self, request: gr.Request, shown: Any) -> Iterator[list[Any]]:
        """Continue the shown task."""
        try:
            task = self.tasks.get(self._shown_id(shown))
            if task.state == "running":
                raise ValueError(f"{self.kind}: it is running; stop it first, or wait")
        except Exception as error:
            yield self._refusal(shown, error)
            return
        yield from self._stream(task, visitor_id(request), task.run, shown)

    def reopen(self, asked: Any) -> list[Any]:
        """Show a task by its id, for a page that was loaded again; a skip if it is gone."""
        try:
            task = self.tasks.get(asked)
        except ValueError:
            return [gr.skip()] * (1 + len(BUTTONS))
        if task.state != "running":
            return [self.document(task), *buttons(task)]
        document = json.loads(self.document(task)) | {"message": ELSEWHERE}
        return [to_json(document), *buttons(None)]

    def idle(self, request: gr.Request, shown: Any) -> list[Any]:
        """The buttons when no task of the visitor runs; those of a running task stay."""
        if self._live.control(visitor_id(request)) is not None:
            return [gr.skip()] * len(BUTTONS)
        try:
            return buttons(self.tasks.get(self._shown_id(shown)))
        except ValueError:
            return buttons(None)

    def stop(self, request: gr.Request) -> None:
        """Stop the visitor's task within a step."""
        control = self._live.control(visitor_id(request))
        if control is not None:
            control.stop()

    def leave(self, request: gr.Request) -> None:
        """Handle a closed tab: stop its task and drop its file; what was run stays in memory."""
        self._live.leave(visitor_id(request))
        self.sources.leave(visitor_id(request))

    def fill(self, event: gr.EventData) -> list[Any]:
        """Show the Run tab with the settings of the race of a click, as far as the form can."""
        form = self._handlers.form
        try:
            race = self._asked_race(event)[0]
        except ValueError:
            return [gr.skip(), None]
        try:
            given = form.given(form.values_by_key(race))
        except ValueError:  # the lanes differ in what they share on the form
            given = None
        return [gr.Tabs(selected="run"), given]

    def race(self, event: gr.EventData, request: gr.Request) -> Iterator[list[Any]]:
        """Run the race of a click, plain decoding in lane A."""
        who = visitor_id(request)
        try:
            race, answer = self._asked_race(event)
            race_plans(self._handlers.session, race)
        except Exception as error:
            yield self._handlers.refusal(who, self._said(error))
            return
        yield from self._handlers.run_race(race, who, answer)

    def _asked_race(self, event: gr.EventData) -> tuple[RaceSpec, str | None]:
        return self._race_of(self.tasks.get(getattr(event, self.kind, None)), event)

    def _stream(
        self, task: T, who: str, work: Callable[[Any], Iterator[Any]], before: Any
    ) -> Iterator[list[Any]]:
        """The messages of a task while `work`, called with a new control, runs a part of it.

        If it is refused, the document `before` stays.
        """
        try:
            control = self._handlers.controls.new()
        except ValueError as error:
            yield self._refusal(before, error)
            return
        idle, shown = [gr.skip()] * len(BUTTONS), time.monotonic()
        self._live.begin(who, task.id, control)
        failure = ""
        try:
            yield [self.document(task), *buttons(task, running=True)]
            with closing(work(control)) as events:  # type: ignore[type-var]
                for some in coalesce(events, MAX_HZ):
                    whole = time.monotonic() - shown > WHOLE_S
                    shown = time.monotonic() if whole else shown
                    yield [self.document(task, some, whole), *idle]
        except Exception as error:
            failure = self._said(error)
        finally:
            control.stop()
            replaced = self._live.control(who) not in (control, None)
            self._live.end(who, task.id, control)
        if replaced:  # a newer task of the visitor is shown
            return
        document = self.document(task)
        if failure:
            document = to_json(json.loads(document) | {"state": "failed", "message": failure})
        yield [document, *idle]

    def _refusal(self, shown: Any, error: Exception) -> list[Any]:
        """What is wrong; a task that is shown stays and can be continued."""
        refused = {"state": "refused", "message": self._said(error)}
        try:
            task = self.tasks.get(self._shown_id(shown))
        except ValueError:
            return [to_json({self.kind: ""} | dict(self.empty) | refused), *buttons(None)]
        return [to_json(task.progress() | refused), *buttons(task)]

    def _said(self, error: Exception) -> str:
        return self._handlers.form.labelled(error_text(error))

    def _shown_id(self, shown: Any) -> Any:
        """The id of the task that a document shows; `shown` is untrusted."""
        try:
            found = json.loads(shown) if isinstance(shown, str) else None
        except (ValueError, RecursionError):
            found = None
        return found.get(self.kind) if isinstance(found, dict) else None


def buttons(task: Task | None, running: bool = False) -> list[Any]:
    """Updates of the buttons: of a running task, of one that is not, or of none."""
    left = task is not None and task.left
    enabled = {"stop"} if running else {"run", "estimate", *(["continue"] if left else [])}
    return [gr.update(interactive=name in enabled) for name in BUTTONS]
