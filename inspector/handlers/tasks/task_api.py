"""What the API endpoints of batches and of searches share: checked requests and streams."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any, ClassVar, Generic, TypeVar

import gradio as gr

from engine.config.spec import RunSpec
from inspector.handlers.api import refused
from inspector.handlers.page_handlers import MAX_HZ, Handlers
from inspector.protocol import Task, Tasks
from inspector.server.abandoned_calls import check_stream_is_read
from inspector.server.throttle import coalesce

T = TypeVar("T", bound=Task)


class TaskEndpoints(Generic[T]):
    """The endpoints of tasks of one kind.

    `kind` is the field of a request with the id of a task to continue, `fields` are all of them.
    """

    kind: ClassVar[str]
    fields: ClassVar[tuple[str, ...]]

    def __init__(self, handlers: Handlers, tasks: Tasks[T]) -> None:
        self.tasks = tasks
        self._handlers = handlers

    def _answer(self, name: Any, of: Callable[[T], dict[str, Any]]) -> dict[str, Any]:
        """What `of` makes of the task of an id, or why it cannot, as a refusal."""
        try:
            return of(self.tasks.get(name))
        except Exception as error:
            raise refused(error) from None

    def _stream(
        self,
        work: Callable[[Any], Iterator[Any]],
        message: Callable[[Sequence[Any]], dict[str, Any]],
    ) -> Iterator[dict[str, Any]]:
        """The `message` of the events of `work`, which is called with a control of its own.

        A caller stops the work by cancelling the call, which closes the stream, or by not reading
        it.
        """
        try:
            control = self._handlers.controls.new()
        except ValueError as error:
            raise refused(error) from None
        try:
            with closing(work(control)) as events:  # type: ignore[type-var]
                for some in coalesce(events, MAX_HZ):
                    check_stream_is_read()
                    yield message(some)
        except (GeneratorExit, gr.Error):
            raise
        except Exception as error:
            raise refused(error) from None
        finally:
            control.stop()

    def _checked(self, asked: Any) -> tuple[T | None, bool]:
        """The task that an untrusted request continues, if any, and whether its time is wanted.

        Raises ValueError naming the field that is wrong.
        """
        kind = self.kind
        if not isinstance(asked, Mapping):
            raise ValueError(f"{kind}: expected an object")
        if unknown := sorted(set(asked) - set(self.fields)):
            known = ", ".join(self.fields)
            raise ValueError(f"{kind}: {unknown[0][:40]!r} is unknown; use {known}")
        estimate = asked.get("estimate", False)
        if type(estimate) is not bool:
            raise ValueError("estimate: expected true or false")
        if kind not in asked:
            return None, estimate
        if set(asked) - {kind, "estimate"}:
            raise ValueError(f"{kind}: a {kind} that goes on has its own prompts and settings")
        return self.tasks.get(asked[kind]), estimate

    def _base(self, asked: Mapping[str, Any]) -> RunSpec:
        """The default settings with the fields of `spec`; ValueError naming a wrong one."""
        given = asked.get("spec", {})
        if not isinstance(given, Mapping):
            raise ValueError("spec: expected an object with fields of a run spec")
        base = replace(self._handlers.session.default_race().a, prompt="")
        return RunSpec.from_dict(base.to_dict() | dict(given))


def prompt_source(asked: Mapping[str, Any]) -> dict[str, Any]:
    """The prompts of a request, as the engine takes them."""
    source: dict[str, Any] = {}
    if "problems" in asked:
        source["problems"] = asked["problems"]
    if "prompts" in asked:
        name = "text" if isinstance(asked["prompts"], str) else "rows"
        source[name] = asked["prompts"]
    return source
