"""API endpoints: `/methods`, `/plan`, `/estimate`, `/image`, `/run`, `/trace` and `/what_if`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import gradio as gr
import numpy as np

from engine.config.spec import RaceSpec
from engine.core.events import Event, RunFinished, StepEvent, Waiting
from inspector.handlers.estimates import EstimateService
from inspector.handlers.page_handlers import MAX_HZ, RUNS, Handlers, error_text, visitor_id
from inspector.handlers.view_service import ViewService
from inspector.page_data import compare, messages, tokens
from inspector.page_data.plan import race_plans
from inspector.protocol import LANES
from inspector.run_store import RaceRecord
from inspector.server.abandoned_calls import check_stream_is_read
from inspector.server.throttle import coalesce
from inspector.views import registry

MAX_VIEW_CHARS = 16_000_000
VIEWS_AT_ONCE = 2  # some unpack a whole trace: eight bytes for each of a plan, and copies of them


class Endpoints:
    """The endpoints of the API.

    A race is given as `{"a": {...}, "b": {...}}`, each lane with the fields of a run spec. Fields
    that are left out take their defaults. An empty document stands for the page's default race.
    """

    def __init__(self, handlers: Handlers, estimates: EstimateService) -> None:
        self._handlers = handlers
        self._session = handlers.session
        self._views = ViewService(handlers)
        self._estimates = estimates

    def methods(self) -> dict:
        """List the models, unmaskers, caches and fields, with ranges and defaults."""
        return self._session.catalog()

    def plan(self, race: dict) -> dict:
        """Derive the plan of a race without running it.

        Args:
            race: the two lanes, `a` and `b`; empty for the page's default race.
        """
        try:
            spec = self._race(race)
            plans = race_plans(self._session, spec)
        except Exception as error:
            raise refused(error) from None
        return {"race": spec.to_dict(), "query": spec.to_query(), "plans": plans}

    def estimate(
        self,
        race: dict,
        model: str = "GSAI-ML/LLaDA-8B-Instruct",
        device: str = "h100",
        options: dict | None = None,
    ) -> dict:
        """Estimate FLOPs, memory and time of a race on another model and device, without a run.

        Args:
            race: the two lanes, `a` and `b`; empty for the page's default race.
            model: a listed model, one of this machine, or a shape such as `llada:layers=4,d=64`.
            device: `h200`, `h100`, `a100`, `rtx4090`, `rtx3090`, or `this` for this machine.
            options: may have `prompt_tokens`, `assumptions` (`tokens_per_forward`, `share`), and
                `recorded`, the id of a run whose lanes give the assumptions.
        """
        try:
            if options is not None and not isinstance(options, dict):
                raise ValueError("options: expected a mapping (JSON object)")
            return self._estimates.lanes(self._race(race), model, device, options or {})
        except Exception as error:
            raise refused(error) from None

    def run(self, race: dict, request: gr.Request) -> Iterator[dict]:
        """Run a race; stream the steps, then the texts, the metrics of both lanes and a run id.

        While the run waits, as for a download, `state` says what for, and `wait` has how much of it
        is done and in total, or how many runs are ahead.

        Args:
            race: the two lanes, `a` and `b`; empty for the page's default race.
        """
        try:
            spec = self._race(race)
            race_plans(self._session, spec)
            images = self._handlers.images.given(visitor_id(request), [spec.a, spec.b])
        except Exception as error:
            raise refused(error) from None
        handlers = self._handlers
        record = RaceRecord(expected=handlers.known_problems.expected(spec.a.prompt))
        who = f"api:{visitor_id(request)}:{record.run_id}"
        try:
            with (
                handlers.live_run(who, record, (spec.a, spec.b)) as control,
                closing(self._session.race(spec, control, images=images)) as events,  # type: ignore[type-var]
            ):
                for batch in coalesce(events, MAX_HZ):
                    check_stream_is_read()
                    yield self._progress(record, batch)
            record.state, record.message = messages.final_state(record)
            handlers.store.put(record)
            yield self._result(record)
        except (GeneratorExit, gr.Error):
            raise
        except Exception as error:
            raise refused(error) from None
        finally:
            handlers.live_runs.leave(who)

    def image(self, file: dict, request: gr.Request) -> dict:
        """Add an image file for runs of this client; returns its name for the field `images`.

        The file is checked, rotated as its EXIF data says, and kept in memory for this client
        alone, for at most an hour after its last use.

        Args:
            file: an uploaded file (`handle_file` of gradio_client): PNG, JPEG, WebP, BMP or GIF.
        """
        try:
            path = file.get("path") if isinstance(file, dict) else None
            if not isinstance(path, str) or not isinstance(file.get("meta"), dict):
                raise ValueError("file: expected an uploaded file, as from handle_file")
            name = self._handlers.images.read(visitor_id(request), path)
        except Exception as error:
            raise refused(error) from None
        return {"image": name}

    def trace(self, run: str, lane: str, view: str) -> dict:
        """Return the data of one view of a run of `/run` or the page that is still in memory.

        Arrays are given as type, shape and data: little-endian bytes, deflated, in base64.

        Args:
            run: the id of the run.
            lane: `a` or `b`.
            view: `frame`, `drift` and so on; the error for an unknown name lists all names.
        """
        for name, given in (("run", run), ("lane", lane), ("view", view)):
            if not isinstance(given, str):
                raise refused(ValueError(f"{name}: expected text"))
        if lane not in LANES:
            raise refused(ValueError(f"lane: choose from {', '.join(LANES)}"))
        if view not in registry.VIEWS:
            names = ", ".join(registry.VIEWS)
            raise refused(ValueError(f"view: choose from {names}"))
        text = self._views.view([run, lane, view])
        if len(text) > MAX_VIEW_CHARS:
            raise refused(
                ValueError(f"view: larger than {MAX_VIEW_CHARS // 1_000_000} MB; export the trace")
            )
        found = json.loads(text)
        if "missing" in found:
            raise refused(ValueError(f"{view}: {found['missing']}"))
        return found

    def what_if(self, run: str, lane: str, step: int, settings: dict) -> dict:
        """Return what a recorded step would have committed under other settings, by token.

        No forward is computed. The run has to be recorded (`record` steps or above).

        Args:
            run: the id of the run.
            lane: `a` or `b`.
            step: the step, from 0.
            settings: `unmasker`, `temperature` and those of unmaskers, such as
                `threshold.threshold`; what is left out stays as in the run.
        """
        try:
            trace = self._views.trace(run, lane)
            if type(step) is not int:
                raise ValueError("step: expected a whole number")
            if not isinstance(settings, dict):
                raise ValueError("settings: expected a mapping (JSON object)")
            texts = {
                str(k): v if isinstance(v, str) else json.dumps(v) for k, v in settings.items()
            }
            found = self._session.what_if(trace, step, texts)
        except Exception as error:
            raise refused(error) from None
        return {name: _plain(value) for name, value in found.items()}

    def _race(self, race: Any) -> RaceSpec:
        return RaceSpec.from_dict(race) if race else self._session.default_race()

    def _progress(self, record: RaceRecord, batch: list[tuple[str, Event]]) -> dict[str, Any]:
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

    def _result(self, record: RaceRecord) -> dict[str, Any]:
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


def _plain(value: Any) -> Any:
    """Arrays as lists; numbers that JSON does not have become None."""
    if not isinstance(value, np.ndarray):
        return value
    if value.dtype.kind != "f":
        return value.tolist()
    whole = value.astype(object)
    whole[~np.isfinite(value)] = None
    return whole.tolist()


def refused(error: Exception) -> gr.Error:
    """An error for the caller of the API, with the text of `error_text`."""
    return gr.Error(error_text(error), print_exception=False)


def add_api(handlers: Handlers, estimates: EstimateService) -> None:
    """Register the endpoints in the current Blocks."""
    endpoints = Endpoints(handlers, estimates)
    gr.api(endpoints.methods, api_name="methods")
    gr.api(endpoints.plan, api_name="plan")
    gr.api(endpoints.estimate, api_name="estimate")
    gr.api(endpoints.image, api_name="image")
    gr.api(endpoints.run, api_name="run", **RUNS)
    gr.api(endpoints.trace, api_name="trace", concurrency_limit=VIEWS_AT_ONCE)
    gr.api(endpoints.what_if, api_name="what_if")
