"""Recording does not change a run, and equals closed forms."""

from functools import cache

import numpy as np
import pytest

from engine.record.probe_recorder import ProbeRecorder
from engine.record.recorder import Recorder, StepRecorder
from tests.support.micro import TWO_BLOCKS, full_policies, make_spec, model_of, run, tapped

CASES = [
    ("mha", {"cache": "none", "unmasker": "threshold"}),
    ("gqa", {"cache": "prefix", "unmasker": "quota"}),
    ("shifted-mha", {"cache": "prefix", "unmasker": "factor"}),
    ("shifted-gqa", {"cache": "dual", "unmasker": "quota", "steps": 8}),
    ("mha", {"cache": "dual", "unmasker": "threshold", "temperature": 1.0}),
    ("gqa", {"cache": "dual", "unmasker": "quota", "cfg_scale": 2.0}),
    ("shifted-mha", {"cache": "prefix", "knobs": {"prefix.refresh_interval": 3}}),
    ("shifted-gqa", {"cache": "dual", "knobs": {"dual.refresh_interval": 2}}),
]
every_case = pytest.mark.parametrize("case", range(len(CASES)))


@cache
def ran(case, recorder=Recorder, *sizes):
    """The run of a case with a recorder, made once; tests must not change it."""
    family, changes = CASES[case]
    return run(model_of(family), make_spec(**changes), recorder=recorder(*sizes))


@pytest.mark.parametrize("cache", full_policies())
def test_recorder_changes_no_bit_under_any_policy(cache):
    """The families alternate; the cases below have all four."""
    model = model_of(("mha", "shifted-gqa")[list(full_policies()).index(cache) % 2])
    knobs = {"threshold.threshold": 0.4}
    spec = make_spec(cache=cache, unmasker="threshold", knobs=knobs, **TWO_BLOCKS)
    off = run(model, spec)
    for recorder in (StepRecorder(), ProbeRecorder(8, 4)):
        assert off.reveals == run(model, spec, recorder=recorder).reveals


@every_case
def test_recorder_changes_no_bit_of_a_run(case):
    off, on = ran(case), ran(case, ProbeRecorder, 16, 8)
    assert np.array_equal(off.ids, on.ids)
    assert all(e.recording is None for e in off.events)
    for a, b in zip(off.events, on.events, strict=True):
        assert np.array_equal(a.positions, b.positions)
        assert np.array_equal(a.ids, b.ids)
        assert np.array_equal(a.confidence, b.confidence)
        assert (a.kind, a.rows, a.forwards) == (b.kind, b.rows, b.forwards)


def closed_form(changes, per_block, shift):
    """Rows of a run of 22 positions, prompt 6, from the steps of each block."""
    cache = changes["cache"]
    every = changes.get("knobs", {}).get(f"{cache}.refresh_interval")
    total = 0
    for block, steps in enumerate(per_block):
        start = 6 + 4 * block
        window = {"none": 22, "prefix": 22 - start + shift, "dual": 4 + shift}[cache]
        full = -(-steps // every) if every else 1
        total += full * 22 + (steps - full) * window
    return total


@every_case
def test_rows_equal_the_closed_form(case):
    family, changes = CASES[case]
    model, events = model_of(family), ran(case).events
    per_block = np.bincount([e.block for e in events]).tolist()
    assert sum(e.rows for e in events) == closed_form(changes, per_block, model.info.logit_shift)
    assert [e.step for e in events] == list(range(len(events)))
    branches = 2 if "cfg_scale" in changes else 1
    assert {e.forwards for e in events} == {branches}


@every_case
def test_recorded_plans_hold_the_rows_recomputed(case):
    events = ran(case, StepRecorder).events
    for event in events:
        plan = np.unpackbits(event.recording.plan, axis=-1)[..., :22]
        assert plan.shape == (3, 4, 22)
        assert (plan.sum(-1) == event.rows).all()
    fulls = {event.kind for event in events if event.rows == 22}
    assert fulls == {"full"}


@every_case
def test_candidates_are_the_masks_of_the_block_with_their_best_tokens(case):
    family, changes = CASES[case]
    _, taps = tapped(model_of(family), make_spec(**changes))
    events = ran(case, StepRecorder).events
    for event, (view, _, logits, _) in zip(events, taps, strict=True):
        seen = event.recording
        assert np.array_equal(seen.positions, view.needs[0].numpy())
        top = logits[0].softmax(-1).topk(5)
        assert np.array_equal(seen.top_ids, top.indices.numpy())
        assert np.allclose(seen.top_probs, top.values.numpy())


def test_a_frozen_plan_is_detected():
    events = run(model_of("mha"), make_spec(cache="dual"), recorder=StepRecorder()).events
    plans = {event.recording.plan.tobytes() for event in events}
    assert len(plans) == 5


def test_times_are_positive_and_add_up():
    for event in run(model_of("mha"), make_spec()).events:
        assert event.forward_ms > 0
        assert event.decide_ms > 0
        assert event.step_ms == event.forward_ms + event.decide_ms
