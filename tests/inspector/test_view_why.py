"""What the page is told of a cache's rule: clocks, periods, thresholds."""

from dataclasses import replace

import numpy as np
import pytest

from inspector.views.candidates import candidates
from inspector.views.why import renewals, why
from tests.inspector.conftest import small_race
from tests.inspector.unpacked import unpacked
from tests.support import looking


def recorded(session, cache, **knobs):
    spec = small_race(session).a
    named = {f"{cache}.{name}": value for name, value in knobs.items()}
    return looking.recorded(session, replace(spec, cache=cache, knobs=named, record="steps"))


@pytest.mark.parametrize("named", [True, False])
def test_the_clock_of_dllm_cache_is_read_from_the_run(session, named):
    knobs = {"prompt_interval": 10, "response_interval": 4}
    trace = recorded(session, "dllm_cache", **knobs)
    trace.meta["spec"] = trace.meta["spec"] | ({} if named else {"knobs": {}})
    found = why(trace)
    steps = np.arange(trace.steps)
    due = unpacked(found["due"])
    assert np.array_equal(np.flatnonzero(due[:, 0]), np.flatnonzero(steps % 10 == 0))
    assert np.array_equal(np.flatnonzero(due[:, 1]), np.flatnonzero(steps % 4 == 0))
    assert found["periods"] == [10, 4, 4]
    assert found["parts"] == ["dllm_cache"]
    assert found["shift"] == 0


def test_without_a_planned_clock_it_is_read_from_what_was_done(session):
    trace = recorded(session, "dllm_cache", prompt_interval=8, response_interval=3)
    planned = renewals(trace)
    arrays = trace.arrays() | {"planned": np.zeros((0, 3), np.uint8)}
    trace.arrays = lambda: arrays
    assert np.array_equal(renewals(trace), planned)
    arrays["plan"] = np.zeros_like(arrays["plan"])
    assert not renewals(trace).any()


def test_thresholds_and_budgets_are_those_of_the_facts(session):
    found = why(recorded(session, "dare_kv"))
    assert len(found["threshold"]) == 8
    assert all(limit > 0 for limit in found["threshold"])
    assert why(recorded(session, "none"))["threshold"] is None


def test_a_run_without_plans_says_so(traces):
    for view in (why, candidates):
        with pytest.raises(ValueError, match="press Record"):
            view(traces["a"])


def test_candidates_know_which_token_was_committed(session):
    trace = recorded(session, "dual")
    found, arrays = candidates(trace), trace.arrays()
    step, position = unpacked(found["step"]), unpacked(found["position"])
    chosen, ids = unpacked(found["chosen"]), unpacked(found["ids"])
    marked = chosen != 255
    pairs = zip(arrays["commit_step"], arrays["commit_position"], arrays["commit_id"], strict=True)
    committed = {(int(s), int(p)): int(i) for s, p, i in pairs}
    got = {
        (int(s), int(p)): int(ids[n, chosen[n]])
        for n, (s, p) in enumerate(zip(step, position, strict=True))
        if marked[n]
    }
    assert got == committed
    assert marked.sum() < len(marked)
    probs = unpacked(found["probs"])
    assert (np.diff(probs, axis=1) <= 0).all()
    assert (probs.sum(1) <= 1 + 1e-5).all()
    assert set(found["pieces"]) == {str(i) for i in np.unique(ids)}
