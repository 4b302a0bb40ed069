"""Level probe: steps compared with an exact forward, and that with a reference network."""

import numpy as np
import pytest
import torch

from engine.core.events import SITES
from engine.record import probe_recorder
from engine.record.last_values import cosine_distance
from engine.record.probe_recorder import ProbeRecorder
from tests.support.micro import (
    TWO_BLOCKS,
    full_policies,
    make_prompts,
    make_spec,
    model_of,
    run,
    tapped,
)
from tests.support.reference import reference_logits

LENGTH = 22


def probed(family="mha", probes=16, prompts=None, chosen=(), **changes):
    """The steps of a run that were probed, as (event, probe), and all its events."""
    spec = make_spec(**changes)
    events = run(model_of(family), spec, prompts, ProbeRecorder(16, probes, chosen)).events
    compared = [(e, e.recording.probe) for e in events if e.recording.probe is not None]
    return compared, events


@pytest.mark.parametrize("changes", [{}, {"cfg_scale": 1.5}, {"unmasker": "threshold"}])
def test_plain_decoding_is_exact(family, changes):
    compared, _ = probed(family, **TWO_BLOCKS, **changes)
    assert len(compared) > 4
    for _, probe in compared:
        assert probe.error.shape == (3, 4, 6 + 8)
        assert (probe.error == 0).all()
        assert probe.tv.max() < 1e-6
        assert np.array_equal(probe.top[:, 0], probe.top[:, 1])


def test_a_cache_is_not_exact(family):
    compared, _ = probed(family, cache="dual")
    reusing = [s for e, s in compared if e.kind == "partial"]
    assert reusing
    assert max(s.error[s.error < 255].max() for s in reusing) > 50
    assert max(s.tv.max() for s in reusing) > 1e-4
    assert all((s.error == 0).all() for e, s in compared if e.kind == "full")


def test_moved_equals_drift_under_plain_decoding():
    compared, _ = probed()
    first = compared[0][1]
    assert (first.moved == 255).all()
    for event, probe in compared[1:]:
        drift = event.recording.drift[:, : len(SITES)].astype(int)
        assert np.abs(probe.moved - drift).max() <= 1
        assert probe.moved.max() > 50


@pytest.mark.parametrize("cache", full_policies())
def test_reused_rows_keep_the_error_that_they_had(cache):
    compared, _ = probed("shifted-gqa", cache=cache, unmasker="threshold", **TWO_BLOCKS)
    for event, probe in compared[1:]:
        plan = np.unpackbits(event.recording.plan, axis=-1, count=6 + 8).astype(bool)
        first = probe.error[0, :2][plan[0, :2]]
        assert (first <= 1).all(), "K and V of layer 0 depend on the token alone"
        rests = ~plan & (probe.error < 255)
        assert np.array_equal(probe.error[rests], probe.moved[rests])


@pytest.mark.parametrize("family", ["mha", "shifted-gqa"])
def test_predictions_are_compared_with_the_exact_network(family):
    model = model_of(family)
    _, taps = tapped(model, make_spec(cache="dual"))
    compared, _ = probed(family, cache="dual")
    for (view, _, logits, canvas), (_, probe) in zip(taps, compared, strict=True):
        exact = reference_logits(model, canvas)[0, view.logit_rows[0]]
        found = logits[0]
        keep = torch.isfinite(found).all(0)
        assert np.array_equal(probe.positions, view.needs[0].numpy())
        assert np.array_equal(probe.top[:, 1], exact.argmax(-1).numpy())
        a, b = found[:, keep].softmax(-1), exact[:, keep].softmax(-1)
        near = 0.5 * (a - b).abs().sum(-1).numpy()  # the mask's own logit left out
        assert np.allclose(probe.tv, near, rtol=0.2, atol=1e-6)
    assert max(probe.tv.max() for _, probe in compared) > 1e-3


def test_rows_that_take_no_part_are_not_evaluated():
    compared, _ = probed(cache="dual")
    for event, probe in compared:
        rows = np.arange(LENGTH)
        lo = 6 + 4 * event.block
        fed = (rows >= lo) & (rows < lo + 4) if event.block_step else rows >= 0
        assert ((probe.error[:, 2:] == 255) == ~fed).all()
        assert (probe.error[:, :2] < 255).all()


def test_keys_that_a_window_hides_are_not_evaluated():
    knobs = {"freecache.window": 5}
    compared, _ = probed(cache="freecache", knobs=knobs)
    masked = set(range(6, LENGTH))
    for event, probe in compared:
        edge = min(masked) - 1 + 5 if event.step else LENGTH
        hidden = (probe.error[:, :2] == 255).all((0, 1))
        assert hidden.tolist() == [at >= edge for at in range(LENGTH)]
        masked -= set(event.positions.tolist())


@pytest.mark.parametrize(("probes", "steps"), [(1, [0]), (3, [0, 6, 11]), (4, [0, 4, 8, 12])])
def test_probes_are_spread_evenly_over_the_steps(probes, steps):
    assert [event.step for event, _ in probed(probes=probes)[0]] == steps


def test_chosen_steps_are_probed_and_no_others():
    assert [event.step for event, _ in probed(probes=4, chosen=[5, 2, 99])[0]] == [2, 5]


def test_probes_are_spread_evenly_over_the_tokens():
    compared, events = probed(probes=4, steps=8, gen_length=16, unmasker="quota")
    assert [event.step for event, _ in compared] == [0, 2, 4, 6]
    known = np.cumsum([0, *(len(e.ids) for e in events)])
    assert [int(known[event.step]) for event, _ in compared] == [0, 4, 8, 12]
    assert len(probed(probes=64)[0]) == 16


def test_padding_takes_no_part_in_the_exact_forward():
    short, long = make_prompts(4), make_prompts(6, seed=8)
    compared, _ = probed(prompts=[*short, *long])
    alone, _ = probed(prompts=short)
    for (_, probe), (_, other) in zip(compared, alone, strict=True):
        assert (probe.error[:, :, 2:] == 0).all()
        assert (probe.error[:, :2, :2] == 255).all()
        assert np.array_equal(probe.top, other.top)


def test_one_layer_is_compared_with_the_exact_one_at_a_time(monkeypatch):
    """The comparison copies both values in float32, and all layers may have gigabytes."""
    shapes = set()

    def measured(a, b):
        shapes.add((len(a.shape), len(b.shape)))
        return cosine_distance(a, b)

    monkeypatch.setattr(probe_recorder, "cosine_distance", measured)
    probed(cache="dual")
    assert shapes == {(2, 2)}
