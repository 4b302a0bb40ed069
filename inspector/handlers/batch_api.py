"""API endpoints of batches: `/batch`, `/batch_results` and `/batch_aggregates`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from typing import Any

import gradio as gr

from engine.config.spec import RunSpec
from engine.core.events import Waiting
from inspector.handlers.api import refused
from inspector.handlers.page_handlers import RUNS, Handlers, visitor_id
from inspector.page_data import messages
from inspector.protocol import Batch, Batches
from inspector.run_store import LiveRuns
from inspector.server.throttle import coalesce

MAX_HZ = 2.0
ROWS = 500  # of an answer
FIELDS = ("prompts", "problems", "spec", "settings", "record", "estimate", "batch")


class BatchEndpoints:
    """The endpoints of batches."""

    def __init__(self, handlers: Handlers, batches: Batches) -> None:
        self._handlers, self._batches = handlers, batches
        self._live = LiveRuns()

    def batch(self, batch: dict, request: gr.Request) -> Iterator[dict]:
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
        who = f"api:{visitor_id(request)}:{found.id}"
        control = self._handlers.session.control()
        self._live.begin(who, found.id, control)
        try:
            with closing(found.run(control, first)) as events:  # type: ignore[type-var]
                for some in coalesce(events, MAX_HZ):
                    wait = some[-1] if isinstance(some[-1], Waiting) else None
                    yield found.progress() | ({"wait": messages.wait(wait)} if wait else {})
            yield found.front() | {"runs": found.rows(0, ROWS)}
        except (GeneratorExit, gr.Error):
            raise
        except Exception as error:
            raise refused(error) from None
        finally:
            control.stop()
            self._live.leave(who)

    def results(self, batch: str, first: int = 0) -> dict:
        """Return the figures of a batch so far, and 500 of its runs.

        Args:
            batch: the id of the batch.
            first: the number of the first run, counted from 0.
        """
        try:
            if type(first) is not int or first < 0:
                raise ValueError("first: expected a whole number from 0 on")
            found = self._batches.get(batch)
        except Exception as error:
            raise refused(error) from None
        return found.front() | {"runs": found.rows(first, ROWS)}

    def aggregates(self, batch: str) -> dict:
        """Return the aggregates of a recorded batch: mean and spread over its runs, by setting.

        Args:
            batch: the id of the batch.
        """
        try:
            return self._batches.get(batch).aggregates()
        except Exception as error:
            raise refused(error) from None

    def _opened(self, asked: Any) -> tuple[Batch, int | None]:
        """The batch of a request, and the number of prompts that it is to run (None: all)."""
        if not isinstance(asked, Mapping):
            raise ValueError("batch: expected an object")
        if unknown := sorted(set(asked) - set(FIELDS)):
            raise ValueError(f"batch: {unknown[0][:40]!r} is unknown; use {', '.join(FIELDS)}")
        estimate = asked.get("estimate", False)
        if type(estimate) is not bool:
            raise ValueError("estimate: expected true or false")
        first = 1 if estimate else None
        if "batch" in asked:
            if set(asked) - {"batch", "estimate"}:
                raise ValueError("batch: a batch that goes on has its own prompts and settings")
            return self._batches.get(asked["batch"]), first
        base, given = self._handlers.session.default_race().a, asked.get("spec", {})
        if not isinstance(given, Mapping):
            raise ValueError("spec: expected an object with fields of a run spec")
        base = RunSpec.from_dict(replace(base, prompt="").to_dict() | dict(given))
        opened = self._batches.open(
            prompt_source(asked), base, asked.get("settings", []), asked.get("record", "off")
        )
        return opened, first


def prompt_source(asked: Mapping[str, Any]) -> dict[str, Any]:
    """The prompts of a request, as the engine takes them."""
    source: dict[str, Any] = {}
    if "problems" in asked:
        source["problems"] = asked["problems"]
    if "prompts" in asked:
        name = "text" if isinstance(asked["prompts"], str) else "rows"
        source[name] = asked["prompts"]
    return source


def add_batch_api(handlers: Handlers, batches: Batches) -> None:
    """Register the endpoints in the current Blocks."""
    endpoints = BatchEndpoints(handlers, batches)
    gr.api(endpoints.batch, api_name="batch", **RUNS)
    gr.api(endpoints.results, api_name="batch_results")
    gr.api(endpoints.aggregates, api_name="batch_aggregates")
