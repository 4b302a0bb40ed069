"""Races: which lane takes the next step, and that lanes do not affect each other."""

import numpy as np
import pytest

from engine.config.spec import RaceSpec, RunSpec
from engine.core.control import Control
from engine.core.events import RunFinished, RunStarted, StepEvent, Waiting
from engine.generate.loop import Denoiser, denoise
from engine.serve.fair_queue import FairQueue, RunLock
from engine.serve.loaded_model import prompt_ids
from engine.serve.race import run_lanes
from tests.support.micro import micro_job

BASE = {
    "model": "micro", "prompt": "Ann has 3 apples.", "gen_length": 16, "block_length": 8,
    "steps": 16,
}  # fmt: skip
PLAIN = RunSpec(**BASE)
FAST = RunSpec(**BASE, cache="dual", unmasker="threshold", knobs={"threshold.threshold": 0.2})


class FakeLane:
    """Steps of known durations."""

    def __init__(self, *durations):
        self._left, self.clock = list(durations), 0

    def advance(self):
        if not self._left:
            return self.finish("done")
        self.clock += self._left[0]
        return self._left.pop(0)

    def finish(self, reason):
        return RunFinished(reason, None)


def order_of(a, b):
    lock = RunLock(FairQueue())
    events = run_lanes({"a": FakeLane(*a), "b": FakeLane(*b)}, lock, Control())
    return [(name, event if isinstance(event, int) else event.reason) for name, event in events]


def test_the_lane_with_the_least_time_takes_the_next_step():
    expected = [("a", 4), ("b", 1), ("b", 1), ("b", 3), ("a", 1), ("a", "done"), ("b", "done")]
    assert order_of((4, 1), (1, 1, 3)) == expected


def test_a_tie_goes_to_the_first_lane():
    assert [name for name, _ in order_of((1, 1), (1, 1))] == ["a", "b", "a", "b", "a", "b"]


def test_the_last_lane_runs_to_its_end():
    assert [name for name, _ in order_of((), (2, 2))] == ["a", "b", "b", "b"]


def lanes_of(events):
    return {lane: [e for name, e in events if name == lane] for lane in "ab"}


def assert_fair(events):
    clocks = {"a": 0.0, "b": 0.0}
    for name, event in events:
        if isinstance(event, StepEvent):
            assert clocks[name] == min(clocks.values())
            clocks[name] += event.step_ms
        elif isinstance(event, RunFinished):
            assert clocks[name] == min(clocks.values())
            del clocks[name]


def test_the_events_of_a_race_follow_the_clocks(session):
    events = list(session.race(RaceSpec(PLAIN, FAST)))
    assert_fair(events)
    steps = [name for name, event in events if isinstance(event, StepEvent)]
    assert steps != sorted(steps)
    of_steps = [pair for pair in events if isinstance(pair[1], StepEvent)]
    with pytest.raises(AssertionError):
        assert_fair(sorted(of_steps, key=lambda pair: pair[0]))


@pytest.mark.parametrize("sampling", [{}, {"temperature": 1.0, "seed": 5}])
def test_a_lane_of_a_race_equals_the_run_alone(session, sampling):
    a, b = (RunSpec.from_dict(s.to_dict() | sampling) for s in (PLAIN, FAST))
    together = lanes_of(list(session.race(RaceSpec(a, b))))
    for lane, spec in (("a", a), ("b", b)):
        alone = list(session.run(spec))
        end, expected = together[lane][-1], alone[-1]
        assert end.texts == expected.texts
        assert np.array_equal(end.canvas, expected.canvas)
        steps = [e.positions.tolist() for e in together[lane] if isinstance(e, StepEvent)]
        assert steps == [e.positions.tolist() for e in alone if isinstance(e, StepEvent)]
    assert not np.array_equal(together["a"][-1].canvas, together["b"][-1].canvas)


@pytest.mark.parametrize("spec", [PLAIN, FAST], ids=["plain", "fast"])
def test_a_session_run_equals_the_bare_loop(session, spec):
    """The warm-up leaves no trace."""
    events = list(session.run(spec))
    start = next(e for e in events if isinstance(e, RunStarted))
    model = session._models.load(spec)
    state = Denoiser(micro_job(model.adapter, spec, [prompt_ids(spec, model.tokenizer)]))
    assert np.array_equal(start.canvas, state.ids)
    assert (start.canvas[0, -16:] == model.adapter.info.mask_id).all()
    steps = list(denoise(state))
    assert np.array_equal(events[-1].canvas, state.ids)
    seen = [e for e in events if isinstance(e, StepEvent)]
    assert [e.ids.tolist() for e in seen] == [e.ids.tolist() for e in steps]


def test_both_lanes_start_before_either_steps(session):
    kinds = [type(event) for _, event in session.race(RaceSpec(PLAIN, FAST))]
    kinds = [kind for kind in kinds if kind is not Waiting]
    assert kinds[:2] == [RunStarted, RunStarted]
    assert kinds.count(RunFinished) == 2


def test_equal_lanes_give_equal_texts(session):
    together = lanes_of(list(session.race(RaceSpec(FAST, FAST))))
    assert together["a"][-1].texts == together["b"][-1].texts
