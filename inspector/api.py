"""Typed endpoints beside the page: `/methods`, `/plan`, `/run` and `/trace`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import gradio as gr

from engine.events import Event, RunFinished, StepEvent, Waiting
from engine.spec import RaceSpec
from inspector.handlers import MAX_HZ, RUNS, Handlers, plain_words, visitor
from inspector.lens import Lens
from inspector.shelf import Record
from inspector.throttle import coalesce
from inspector.views import compare, messages, registry, tokens

MAX_VIEW_CHARS = 16_000_000


class Endpoints:
    """The API; a race is given as `{"a": {...}, "b": {...}}`, each with the fields of a run.

    What is left out takes its default; an empty document is the page's own race.
    """

    def __init__(self, handlers: Handlers) -> None:
        self._handlers = handlers
        self._session = handlers.session
        self._lens = Lens(handlers)

    def methods(self) -> dict:
        """List the models, unmaskers, caches and fields, with ranges and defaults."""
        return self._session.catalog()

    def plan(self, race: dict) -> dict:
        """Say what a race's settings come to, before anything is run.

        Args:
            race: the two lanes, `a` and `b`; empty for the page's own race.
        """
        try:
            spec = self._race(race)
            plans = {"a": self._session.plan(spec.a), "b": self._session.plan(spec.b)}
        except Exception as error:
            raise refused(error) from None
        return {"race": spec.to_dict(), "query": spec.to_query(), "plans": plans}

    def run(self, race: dict, request: gr.Request) -> Iterator[dict]:
        """Run a race; stream the steps, then the texts, the metrics of both lanes and a run id.

        While a model is fetched or loaded `state` says so, and `wait` its bytes, done and total.

        Args:
            race: the two lanes, `a` and `b`; empty for the page's own race.
        """
        try:
            spec = self._race(race)
            self._session.plan(spec.a)
            self._session.plan(spec.b)
        except Exception as error:
            raise refused(error) from None
        handlers = self._handlers
        record = Record(expected=handlers.answers.expected(spec.a.prompt))
        who = f"api:{visitor(request)}:{record.run_id}"
        try:
            with (
                handlers.live(who, record) as control,
                closing(self._session.race(spec, control)) as events,  # type: ignore[type-var]
            ):
                for batch in coalesce(events, MAX_HZ):
                    yield self._progress(record, batch)
            record.state, record.message = messages.final_state(record)
            handlers.shelf.put(record)
            yield self._result(record)
        except (GeneratorExit, gr.Error):
            raise
        except Exception as error:
            raise refused(error) from None
        finally:
            handlers.desk.leave(who)

    def trace(self, run: str, lane: str, view: str) -> dict:
        """Give one view of a run that `/run` or the page has made, while it is held.

        Arrays come as type, shape and data: little-endian bytes, deflated, in base64.

        Args:
            run: the id that the run was given.
            lane: `a` or `b`.
            view: `frame`, `drift` and so on; an unknown one is answered with their names.
        """
        for name, given in (("run", run), ("lane", lane), ("view", view)):
            if not isinstance(given, str):
                raise refused(ValueError(f"{name}: expected text"))
        if view not in registry.VIEWS:
            names = ", ".join(registry.VIEWS)
            raise refused(ValueError(f"view: choose from {names}"))
        text = self._lens.view([run, lane, view])
        if len(text) > MAX_VIEW_CHARS:
            raise refused(
                ValueError(f"view: larger than {MAX_VIEW_CHARS // 1_000_000} MB; export the trace")
            )
        found = json.loads(text)
        if "missing" in found:
            raise refused(ValueError(f"{view}: {found['missing']}"))
        return found

    def _race(self, race: Any) -> RaceSpec:
        return RaceSpec.from_dict(race) if race else self._session.default_race()

    def _progress(self, record: Record, batch: list[tuple[str, Event]]) -> dict[str, Any]:
        steps, waiting = [], None
        for lane, event in batch:
            record.append(lane, event)
            waiting = event if isinstance(event, Waiting) else None
            if isinstance(event, StepEvent):
                steps.append(
                    {
                        "lane": lane, "step": event.step, "block": event.block,
                        "kind": event.kind, "rows": event.rows, "forwards": event.forwards,
                        "committed": len(event.positions), "masks_left": event.masks_left,
                        "ms": round(event.step_ms, 3),
                    }
                )  # fmt: skip
            elif isinstance(event, RunFinished) and event.reason in ("failed", "memory"):
                raise gr.Error(event.message[:1_000] or "The run failed.", print_exception=False)
        out: dict[str, Any] = {"run": record.run_id, "state": "running", "steps": steps}
        if waiting:
            out |= {"state": waiting.state, "wait": messages.wait(waiting)}
        return out

    def _result(self, record: Record) -> dict[str, Any]:
        lanes = {
            lane: {
                "reason": trace.meta["reason"],
                "text": tokens.answer_text(trace),
                "metrics": compare.clean_metrics(trace),
                "environment": trace.meta["environment"],
            }
            for lane, trace in record.started().items()
        }
        summary = compare.summarise(record.started(), record.expected)
        return {
            "run": record.run_id, "state": record.state, "steps": [],
            "lanes": lanes, "summary": summary,
        }  # fmt: skip


def refused(error: Exception) -> gr.Error:
    """The error that a caller of the API sees."""
    return gr.Error(plain_words(error), print_exception=False)


def add_api(handlers: Handlers) -> None:
    """Register the endpoints in the open Blocks."""
    endpoints = Endpoints(handlers)
    gr.api(endpoints.methods, api_name="methods")
    gr.api(endpoints.plan, api_name="plan")
    gr.api(endpoints.run, api_name="run", **RUNS)
    gr.api(endpoints.trace, api_name="trace")
