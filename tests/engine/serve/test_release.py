"""However a run ends, its tensors are freed and the lock is released."""

import gc
import weakref

import pytest
import torch

import engine.guider.run_guider
import engine.serve.lane
import engine.serve.session
from engine.config.spec import RaceSpec, RunSpec
from engine.core.control import Control
from engine.core.events import RunFinished, StepEvent
from engine.generate.loop import Denoiser
from engine.guider.model import GuiderReader
from tests.engine.serve.test_pause_and_stop import is_free, until
from tests.engine.serve.test_race import FAST, PLAIN
from tests.support.micro import write_checkpoint


@pytest.fixture
def held(monkeypatch):
    """Weak references to every denoiser and store that lanes make."""
    refs = []

    class Watched(Denoiser):
        def __init__(self, job):
            super().__init__(job)
            refs.append(weakref.ref(self))
            refs.extend(weakref.ref(branch.store) for branch in self.branches)

    monkeypatch.setattr(engine.serve.lane, "Denoiser", Watched)
    return refs


def alive(refs):
    gc.collect()
    return [ref() for ref in refs if ref() is not None]


def assert_released(session, refs):
    assert refs
    assert not alive(refs)
    assert is_free(session)


def test_a_run_in_progress_holds_its_tensors_and_the_lock(session, held):
    events = session.run(FAST)
    until(events, StepEvent)
    assert len(alive(held)) == 2
    assert not is_free(session)
    events.close()


@pytest.mark.parametrize("spec", [PLAIN, FAST], ids=["plain", "fast"])
def test_everything_is_released_after_the_end(session, held, spec):
    events = session.run(spec)
    end = until(events, RunFinished)
    assert end.reason == "done"
    assert not alive(held)
    assert next(events, None) is None
    assert_released(session, held)


def test_everything_is_released_after_a_stop(session, held):
    control = Control()
    events = session.race(RaceSpec(PLAIN, FAST), control)
    for _ in range(6):
        next(events)
    control.stop()
    list(events)
    assert_released(session, held)


@pytest.mark.parametrize("steps", [0, 1, 5])
def test_everything_is_released_after_the_stream_is_closed(session, held, steps):
    events = session.run(FAST)
    if steps:
        until(events, StepEvent, steps)
    else:
        next(events)
    events.close()
    assert not alive(held)
    assert is_free(session)


def test_the_tensors_of_a_closed_stream_are_freed_before_the_lock_is_released(
    session, held, monkeypatch
):
    """The next run may capture a graph, which must not be interrupted by the end of another."""
    left = []
    monkeypatch.setattr(engine.serve.session, "free_memory", lambda: left.append(alive(held)))
    events = session.run(FAST)
    until(events, StepEvent)
    assert alive(held)
    events.close()
    assert left == [[]]


def test_everything_is_released_after_the_stream_is_dropped(session, held):
    events = session.race(RaceSpec(PLAIN, FAST))
    for _ in range(6):
        next(events)
    del events
    assert_released(session, held)


def test_a_finished_lane_is_freed_while_the_other_runs(session, held):
    events = session.race(RaceSpec(PLAIN, PLAIN))
    ended = next(name for name, event in events if isinstance(event, RunFinished))
    assert len(alive(held)) <= 2
    assert {name for name, _ in events} == {"a", "b"} - {ended}
    assert_released(session, held)


def test_the_guiders_cache_is_freed_with_its_lane(shipped, monkeypatch):
    """The end of a lane frees it, before the end of the stream does."""
    caches = []

    class Watched(GuiderReader):
        def read(self, ids, known):
            caches.append(weakref.ref(self.cache))
            return super().read(ids, known)

    monkeypatch.setattr(engine.guider.run_guider, "GuiderReader", Watched)
    size = {"gen_length": 8, "block_length": 8, "steps": 8}
    events = shipped.run(RunSpec(prompt="Two and three.", unmasker="guided", **size))
    assert until(events, RunFinished).reason == "done"
    assert caches
    assert not alive(caches)
    events.close()


FAILURES = [
    (RuntimeError, "the kernel broke", "kernel broke"),
    (MemoryError, "", "ran out of memory, and the run's memory"),
    (torch.OutOfMemoryError, "CUDA out of memory", "ran out of memory"),
    (RuntimeError, "DefaultCPUAllocator: can't allocate memory", "ran out of memory"),
    (ValueError, "odd", "odd"),
    (AssertionError, "k: rows left out", "rows left out"),
    (KeyError, "rows", "rows"),
    (TypeError, "a wrong thing", "a wrong thing"),
]


@pytest.mark.parametrize(("kind", "text", "message"), FAILURES)
def test_a_failure_is_reported_with_a_remedy(session, held, monkeypatch, kind, text, message):
    left, advance = iter(range(4)), engine.serve.lane.Lane.advance

    def fail(self):
        if next(left, None) is None:
            raise kind(text)
        return advance(self)

    monkeypatch.setattr(engine.serve.lane.Lane, "advance", fail)
    events = list(session.race(RaceSpec(PLAIN, FAST)))
    ends = [event for _, event in events if isinstance(event, RunFinished)]
    short = "memory" in message
    assert [end.reason for end in ends] == ["memory" if short else "failed"] * 2
    assert message in ends[0].message
    assert "lower gen_length" in ends[0].message or "Change the settings" in ends[0].message
    assert_released(session, held)


def test_a_session_can_run_again_after_a_failure(session, monkeypatch):
    def fail(self):
        raise RuntimeError("once")

    with monkeypatch.context() as patch:
        patch.setattr(engine.serve.lane.Lane, "advance", fail)
        assert list(session.run(PLAIN))[-1].reason == "failed"
    assert list(session.run(PLAIN))[-1].reason == "done"


def test_logits_that_are_not_finite_fail_the_run(tmp_path):
    folder = write_checkpoint(tmp_path / "broken", scale=float("nan"))
    session = engine.serve.session.Session({"broken": folder})
    for unmasker in ("quota", "threshold", "factor"):
        spec = RunSpec(model="broken", prompt="x", gen_length=8, block_length=8, steps=8)
        spec = RunSpec.from_dict(spec.to_dict() | {"unmasker": unmasker})
        end = list(session.run(spec))[-1]
        assert (end.reason, "finite numbers" in end.message) == ("failed", True)
        assert is_free(session)
