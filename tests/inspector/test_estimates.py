"""Estimates that take their assumptions from a run in memory."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from engine.config.spec import RaceSpec, RunSpec
from inspector.handlers import estimates
from inspector.handlers.estimates import EstimateService
from inspector.run_store import RaceRecord

SHAPE = "llada:layers=2,d=64,vocab=1024"


def lanes(handlers, record):
    handlers.store.put(record)
    specs = [RunSpec.from_dict(trace.meta["spec"]) for trace in record.started().values()]
    race = RaceSpec(*(replace(spec, prompt="Nuts") for spec in (specs * 2)[:2]))
    return EstimateService(handlers).lanes(race, SHAPE, "h100", {"recorded": record.run_id})


def test_the_assumptions_are_those_of_the_run(handlers, traces):
    found = lanes(handlers, RaceRecord(state="done", traces=traces))
    for lane, trace in traces.items():
        assert found[lane]["forwards"] == trace.steps


def test_few_requests_are_computed_at_the_same_time(handlers, traces, monkeypatch):
    """Each may take a thread and the interpreter for two minutes, and anybody may ask."""
    service, asked = EstimateService(handlers), []
    spec = replace(RunSpec.from_dict(traces["a"].meta["spec"]), prompt="Nuts")

    def ask(*given, **more):
        asked.append(given)
        return service.lanes(RaceSpec(spec, spec), SHAPE, "h100", {})

    with monkeypatch.context() as patch:
        patch.setattr(estimates, "WAIT_S", 0)
        patch.setattr(handlers.session, "estimate", ask)
        with pytest.raises(ValueError, match=r"^estimate: others are being computed"):
            ask()
        assert len(asked) == 1 + estimates.AT_ONCE
    assert set(ask()) == {"a", "b"}


def test_few_requests_wait_for_their_turn(handlers, traces, monkeypatch):
    """Each would hold a thread, which plans and views need."""
    monkeypatch.setattr(estimates, "WAITING", 1)
    service, waits = EstimateService(handlers), []
    spec = replace(RunSpec.from_dict(traces["a"].meta["spec"]), prompt="Nuts")

    def ask(*given, **more):
        service.lanes(RaceSpec(spec, spec), SHAPE, "h100", {})

    turns = SimpleNamespace(acquire=lambda timeout: not waits.append(timeout), release=list)
    monkeypatch.setattr(service, "_turns", turns)
    monkeypatch.setattr(handlers.session, "estimate", ask)
    with pytest.raises(ValueError, match=r"^estimate: others are being computed"):
        ask()
    assert waits == [estimates.WAIT_S] * (estimates.AT_ONCE + 1)


def test_a_run_without_the_lane_is_refused(handlers, traces):
    record = RaceRecord(state="imported")
    record.traces["a"] = traces["a"]
    with pytest.raises(ValueError, match=r"^recorded: the run has no lane b"):
        lanes(handlers, record)


def test_a_run_that_goes_on_is_refused(handlers, traces):
    traces["b"].meta["reason"] = "running"
    with pytest.raises(ValueError, match=r"^recorded: the run has not ended"):
        lanes(handlers, RaceRecord(traces=traces))
