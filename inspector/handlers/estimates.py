"""Estimates of both lanes on another model and device, for the page and the API."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from engine.config.spec import RaceSpec, RunSpec
from engine.trace.trace import Trace
from inspector.handlers.page_handlers import Handlers, error_text
from inspector.page_data import estimate
from inspector.page_data.messages import to_json
from inspector.protocol import LANES, Lane
from inspector.run_store import RaceRecord

LARGE_DTYPE = "bfloat16"
OPTIONS = ("prompt_tokens", "assumptions", "recorded")
FIELDS = {"query", "model", "device", "tokens_per_forward"}
MAX_QUERY_CHARS = 200_000
AT_ONCE, WAIT_S = 2, 5.0  # requests; the longest computes for two minutes, mostly in Python
WAITING = 30  # as many as a class asks for at once; each takes a thread that other calls need
BUSY = "estimate: others are being computed; ask again in a minute"


class EstimateService:
    """What the runs of a race would be elsewhere; nothing is run.

    At most AT_ONCE requests are computed at the same time, and WAITING others wait. One beyond
    these is refused, and so is one that gets no turn within WAIT_S seconds.
    """

    def __init__(self, handlers: Handlers) -> None:
        self._handlers = handlers
        self._turns = threading.BoundedSemaphore(AT_ONCE)
        self._places = threading.BoundedSemaphore(AT_ONCE + WAITING)

    def page(self, asked: Any) -> str:
        """The estimate of the race in a link's query, in words, as a JSON document.

        `asked` is the untrusted request of a client: an object with FIELDS. What is wrong is
        `{"ok": false, "error": text}`.
        """
        form = self._handlers.form
        try:
            if not isinstance(asked, dict) or set(asked) != FIELDS:
                raise ValueError(f"request: expected the fields {', '.join(sorted(FIELDS))}")
            query, tokens = asked["query"], asked["tokens_per_forward"]
            if not isinstance(query, str) or len(query) > MAX_QUERY_CHARS:
                raise ValueError("query: expected the text of a link's query")
            race = RaceSpec.from_query(query, form.catalog.text_knobs)
            options = {"assumptions": {} if tokens is None else {"tokens_per_forward": tokens}}
            lanes = self.lanes(race, asked["model"], asked["device"], options)
        except Exception as error:
            return to_json({"ok": False, "error": form.labelled(error_text(error))})
        found = list(lanes.values())
        return to_json(
            {
                "ok": True,
                "summary": estimate.summary(found),
                "head": estimate.HEAD,
                "rows": estimate.table(found),
                "published": estimate.published(found),
                "notes": estimate.notes(found),
            }
        )

    def lanes(
        self, race: RaceSpec, model: Any, device: Any, options: dict[str, Any]
    ) -> dict[str, dict[str, Any]]:
        """The estimates of both lanes (Session.estimate); another model is taken in bfloat16.

        `options` may have OPTIONS, `recorded` as the id of a run in memory, whose lanes give the
        assumptions of the same lanes. Raises ValueError naming what is wrong.
        """
        unknown = set(options) - set(OPTIONS)
        if unknown:
            raise ValueError(f"options: {min(unknown)!r} is unknown; give {', '.join(OPTIONS)}")
        record = None
        if options.get("recorded") is not None:
            record = self._handlers.store.get(options["recorded"])
            if record is None:
                raise ValueError("recorded: this run is no longer in memory; run it again")
        found = {}
        with self._turn():
            for lane, spec in zip(LANES, (race.a, race.b), strict=True):
                given = {name: options[name] for name in OPTIONS[:2] if name in options}
                if record is not None:
                    given["recorded"] = _ended(record, lane)
                spec = self._in_large_dtype(spec, model)
                found[lane] = self._handlers.session.estimate(spec, model, device, **given)
        return found

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """A turn to compute; ValueError if there is none."""
        if not self._places.acquire(blocking=False):
            raise ValueError(BUSY)
        try:
            if not self._turns.acquire(timeout=WAIT_S):
                raise ValueError(BUSY)
            try:
                yield
            finally:
                self._turns.release()
        finally:
            self._places.release()

    @staticmethod
    def _in_large_dtype(spec: RunSpec, model: Any) -> RunSpec:
        return spec if model == spec.model else replace(spec, dtype=LARGE_DTYPE)


def _ended(record: RaceRecord, lane: Lane) -> Trace:
    """The trace of a lane that has ended. Raises ValueError naming `recorded`."""
    with record.lock:
        trace = record.started().get(lane)
        if trace is None:
            raise ValueError(f"recorded: the run has no lane {lane}; give a run with both lanes")
        if trace.meta["reason"] == "running":
            raise ValueError("recorded: the run has not ended; wait for its end or stop it")
        return trace.snapshot()
