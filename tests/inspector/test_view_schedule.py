"""The refresh schedule: what was planned, what was done and how much that was."""

from dataclasses import replace

import numpy as np
import pytest

from engine.core.events import KINDS
from inspector.page_data import row_counts
from inspector.views.schedule import portion, running, schedule
from tests.inspector.conftest import small_race
from tests.inspector.figure_traces import changed
from tests.inspector.unpacked import unpacked
from tests.support import looking


def recorded(session, cache, **knobs):
    longer = small_race(session, gen_length=32, block_length=16, steps=32).a
    spec = replace(longer, cache=cache, knobs=knobs, record="steps")
    return looking.recorded(session, spec)


@pytest.fixture(scope="module")
def trace(session):
    return recorded(session, "dllm_cache", **{"dllm_cache.prompt_interval": 10})


def test_every_share_is_a_count_of_the_plan_bits(trace):
    found, arrays = schedule(trace), trace.arrays()
    length, prompt = len(arrays["canvas"]), int(arrays["prompt_mask"].sum())
    bits = [
        [[np.unpackbits(site)[:length] for site in layer] for layer in step]
        for step in arrays["plan"]
    ]
    share, part = unpacked(found["share"]), unpacked(found["portion"])
    assert share.shape == (trace.steps, 8, 4)
    for step, layer, site in ((0, 0, 0), (3, 5, 2), (3, 5, 0), (20, 7, 3)):
        want = bits[step][layer][site].sum() / length
        assert share[step, layer, site] == pytest.approx(want)
    for s, low in ((3, prompt), (20, prompt + 16)):
        rows = {
            0: range(prompt),
            1: range(low, low + 16),
            2: [x for x in range(prompt, length) if not low <= x < low + 16],
        }
        for region, places in rows.items():
            taken = sum(int(site[x]) for layer in bits[s] for site in layer for x in places)
            assert part[s, region] == pytest.approx(taken / (32 * len(places)), abs=1e-6)
    assert 0 < part[3, 1] < 1


def test_running_is_the_mean_of_the_shares_so_far(trace):
    found = unpacked(schedule(trace)["running"])
    shares = unpacked(schedule(trace)["share"]).mean((1, 2))
    for step in (0, 1, 9, 31):
        assert found[step] == pytest.approx(100 * shares[: step + 1].mean(), rel=1e-4)
    shares, calls = np.array([1.0, 0.0, 0.5]), np.zeros(3, bool)
    assert running(shares, calls).tolist() == [100, 50, 50]


def test_a_commit_call_adds_work_to_the_steps_so_far_and_is_none_itself():
    shares, calls = np.array([0.5, 0.25, 0.25, 0.5]), np.array([True, False, True, False])
    assert running(shares, calls).tolist() == [50, 75, 100, 75]


def test_kinds_differ_where_the_rows_chosen_turn_out_to_be_all(session, trace):
    assert unpacked(schedule(trace)["differs"]).shape == (0, 2)
    found = schedule(recorded(session, "dare_o", **{"dare_o.skip_first_layers": 2}))
    planned, done = unpacked(found["planned"]), unpacked(found["done"])
    pairs = {(int(s), int(r)) for s, r in unpacked(found["differs"])}
    assert pairs == {(s, r) for s in range(32) for r in range(3) if planned[s, r] != done[s, r]}
    assert pairs
    part = unpacked(found["portion"])
    assert all((done[cell] == KINDS.index("full")) == (part[cell] == 1) for cell in pairs)


def test_a_changed_plan_shows(trace):
    planned = trace.arrays()["planned"].copy()
    planned[7, 2] = KINDS.index("frozen")
    assert unpacked(schedule(changed(trace, planned=planned))["differs"]).tolist() == [[7, 2]]
    found = schedule(changed(trace, planned=np.zeros((0, 3), np.uint8)))
    assert found["planned"]["shape"] == [0, 3]
    assert found["differs"]["shape"] == [0, 2]


def test_portions_do_not_depend_on_the_windows_of_steps_that_are_counted(trace, monkeypatch):
    whole = unpacked(schedule(trace)["portion"])
    monkeypatch.setattr(row_counts, "STEPS", 5)
    assert np.array_equal(unpacked(schedule(trace)["portion"]), whole, equal_nan=True)


def test_an_empty_region_has_no_portion():
    places = np.array([[[True, True, False], [False, False, True], [False] * 3]])
    bits = np.zeros((1, 2, 4, 3), bool)
    bits[0, 0, :, 0] = True
    found = portion(np.packbits(bits, axis=-1), places)[0]
    assert found[:2].tolist() == [0.25, 0]
    assert np.isnan(found[2])


def test_a_run_without_plans_says_so(traces):
    with pytest.raises(ValueError, match="press Record"):
        schedule(traces["a"])
