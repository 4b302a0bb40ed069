"""Handlers of the advisor's tab: they run searches for settings and return documents."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import gradio as gr

from engine.config.spec import RaceSpec
from inspector.handlers.page_handlers import visitor_id
from inspector.handlers.tasks.task_handlers import TaskHandlers
from inspector.page_data.messages import to_json
from inspector.protocol import Search, Searches


class AdviceHandlers(TaskHandlers[Search]):
    """The logic behind the tab; one object serves all visitors."""

    kind: ClassVar[str] = "search"
    empty: ClassVar[Mapping[str, Any]] = {**TaskHandlers.empty, "stage": "", "runs": 0}

    tasks: Searches

    def starter(self, estimate: bool) -> Callable[..., Iterator[list[Any]]]:
        """A handler that opens a search and runs it, or only estimates its time."""

        def press(
            request: gr.Request, shown: Any, source: Any, text: Any, family: Any, count: Any,
            shots: Any, seed: Any, cache: Any, of: Any, keep: Any, candidates: Any, random: Any,
            values: Any,
        ) -> Iterator[list[Any]]:  # fmt: skip
            try:
                who = visitor_id(request)
                problems = {"family": family, "count": count, "shots": shots, "seed": seed}
                made = self.tasks.open(
                    self.sources.chosen(who, source, text, problems),
                    self._handlers.form.race(values).b, cache, of=of, keep=_share(keep),
                    candidates=candidates, random=bool(random),
                )  # fmt: skip
            except Exception as error:
                yield self._refusal(shown, error)
                return
            yield from self._stream(made, who, made.estimate if estimate else made.run, shown)

        return press

    def document(self, task: Search, events: Sequence[Any] = (), whole: bool = True) -> str:
        """A message of a search: its progress, and the advice so far if `whole`."""
        return to_json(task.figures() if whole else task.progress())

    def _race_of(self, task: Search, event: gr.EventData) -> tuple[RaceSpec, str | None]:
        return task.race(getattr(event, "name", None)), task.answer


def _share(percent: Any) -> Any:
    """A share of 1 for a percentage; anything else stays, to be refused by name."""
    number = type(percent) is float or (type(percent) is int and abs(percent) < 1_000)
    return percent / 100 if number else percent
