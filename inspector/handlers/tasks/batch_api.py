"""API endpoints of batches: `/batch`, `/batch_results` and `/batch_aggregates`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, ClassVar

import gradio as gr

from inspector.handlers.api import refused
from inspector.handlers.page_handlers import RUNS, Handlers
from inspector.handlers.tasks.task_api import TaskEndpoints, prompt_source
from inspector.page_data import messages
from inspector.protocol import Batch, Batches

ROWS = 500  # of an answer


class BatchEndpoints(TaskEndpoints[Batch]):
    """The endpoints of batches."""

    kind: ClassVar[str] = "batch"
    fields: ClassVar[tuple[str, ...]] = (
        "prompts", "problems", "spec", "settings", "record", "estimate", "batch",
    )  # fmt: skip
    tasks: Batches

    def batch(self, batch: dict) -> Iterator[dict]:
        """Run many prompts under plain decoding and other settings; stream the progress.

        The last message has the figures of every setting and the first 500 runs;
        `/batch_results` has the others. A cancelled call keeps what was run: pass its id as
        `batch` to go on.

        Args:
            batch: an object with `prompts` (a text with a prompt in each line, or a list of
                objects with `prompt` and optionally `answer`) or `problems` (`family`, `count`,
                `shots`, `seed`); `spec`, fields of all settings; `settings`, a list of objects
                with `name` and the fields in which each differs; `record`, `off`, `steps`,
                `layers` or `probe`; `estimate`, whether only the first prompt is run. Or an
                object with only `batch`, the id of a batch to continue, and maybe `estimate`.
        """
        try:
            found, first = self._opened(batch)
        except Exception as error:
            raise refused(error) from None

        def message(events: Sequence[Any]) -> dict[str, Any]:
            return found.progress() | messages.last_wait(events)

        yield from self._stream(partial(found.run, first=first), message)
        yield found.figures() | {"runs": found.rows(0, ROWS)}

    def results(self, batch: str, first: int = 0) -> dict:
        """Return the figures of a batch so far, and 500 of its runs.

        Args:
            batch: the id of the batch.
            first: the number of the first run, counted from 0.
        """
        try:
            if type(first) is not int or first < 0:
                raise ValueError("first: expected a whole number from 0 on")
            found = self.tasks.get(batch)
        except Exception as error:
            raise refused(error) from None
        return found.figures() | {"runs": found.rows(first, ROWS)}

    def aggregates(self, batch: str) -> dict:
        """Return the aggregates of a recorded batch: mean and spread over its runs, by setting.

        Args:
            batch: the id of the batch.
        """
        return self._answer(batch, lambda found: found.aggregates())

    def _opened(self, asked: Any) -> tuple[Batch, int | None]:
        """The batch of a request, and the number of prompts that it is to run (None: all)."""
        found, estimate = self._checked(asked)
        if found is None:
            found = self.tasks.open(
                prompt_source(asked), self._base(asked), asked.get("settings", []),
                asked.get("record", "off"),
            )  # fmt: skip
        return found, 1 if estimate else None


def add_batch_api(handlers: Handlers, batches: Batches) -> None:
    """Register the endpoints in the current Blocks."""
    endpoints = BatchEndpoints(handlers, batches)
    gr.api(endpoints.batch, api_name="batch", **RUNS)
    gr.api(endpoints.results, api_name="batch_results")
    gr.api(endpoints.aggregates, api_name="batch_aggregates")
