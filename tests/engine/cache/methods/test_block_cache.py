"""Fast-dLLM's prefix and dual caches: where they are exact, and what they store."""

import numpy as np
import pytest
import torch

from engine.cache.methods.fast_dllm import DualCache
from engine.core.rows import ALL
from engine.generate.loop import Denoiser, denoise
from tests.support import tagged_keys
from tests.support.micro import (
    ATOL,
    FAMILIES,
    MASK,
    TWO_BLOCKS,
    make_spec,
    micro_job,
    model_of,
    run,
    tapped,
    widest_gap,
)
from tests.support.reference import reference_logits

UNMASKERS = ["quota", "threshold", "factor", "frechet"]
CACHES = ["prefix", "dual"]


def loose(unmasker):
    """Settings under which several tokens fall in a step."""
    knobs = {"threshold": {"threshold.threshold": 0.3}, "factor": {"factor.factor": 2.0}}
    return {"unmasker": unmasker, "steps": 8, "knobs": knobs.get(unmasker, {})}


@pytest.mark.parametrize("unmasker", UNMASKERS)
@pytest.mark.parametrize("cache", CACHES)
def test_one_layer_makes_both_caches_exact(family, cache, unmasker):
    plain, expected = tapped(model_of(family, 1), make_spec(**loose(unmasker)))
    cached, steps = tapped(model_of(family, 1), make_spec(cache=cache, **loose(unmasker)))
    assert widest_gap(expected, steps) < ATOL
    assert np.array_equal(plain.ids, cached.ids)
    assert plain.reveals == cached.reveals


@pytest.mark.parametrize("cache", CACHES)
def test_three_layers_make_both_caches_differ(family, cache):
    _, expected = tapped(model_of(family), make_spec())
    _, steps = tapped(model_of(family), make_spec(cache=cache))
    gaps = [widest_gap([a], [b]) for a, b in zip(expected, steps, strict=True)]
    assert gaps[0] < ATOL
    assert gaps[1] > 1e-6


def test_prefix_and_dual_differ_from_each_other(model):
    _, prefix = tapped(model, make_spec(cache="prefix"))
    _, dual = tapped(model, make_spec(cache="dual"))
    gaps = [widest_gap([a], [b]) for a, b in zip(prefix, dual, strict=True)]
    assert max(gaps[:4]) > 1e-6


@pytest.mark.parametrize("unmasker", UNMASKERS)
@pytest.mark.parametrize("cache", CACHES)
def test_refreshing_every_step_is_plain_decoding(family, cache, unmasker):
    settings = loose(unmasker)
    knobs = settings["knobs"] | {f"{cache}.refresh_interval": 1}
    plain, expected = tapped(model_of(family), make_spec(**settings))
    cached, steps = tapped(model_of(family), make_spec(cache=cache, **settings | {"knobs": knobs}))
    assert widest_gap(expected, steps) == 0
    assert np.array_equal(plain.ids, cached.ids)


@pytest.mark.parametrize("every", [None, 2, 3])
@pytest.mark.parametrize("cache", CACHES)
def test_refresh_steps_equal_a_full_forward_on_their_canvas(model, cache, every):
    knobs = {f"{cache}.refresh_interval": every}
    result, steps = tapped(model, make_spec(cache=cache, knobs=knobs, **TWO_BLOCKS))
    stale = 0.0
    for event, (view, plan, logits, canvas) in zip(result.events, steps, strict=True):
        full = reference_logits(model, canvas)[0, view.needs[0] - model.info.logit_shift]
        gap = (logits[0, :, :MASK] - full[:, :MASK]).abs().max().item()
        refresh = event.block_step % (every or 99) == 0
        assert (plan.rows is ALL) == refresh == (event.kind == "full")
        if refresh:
            assert gap < ATOL
        else:
            stale = max(stale, gap)
    assert stale > 1e-6


def fresh_kv(model, layer_input, layer=0):
    x = model.attn_norm(layer, layer_input)
    k, v = model.project(layer, "kv", x, ALL, layer_input.shape[1])
    return k.transpose(1, 2), v.transpose(1, 2)


@pytest.mark.parametrize("cache", CACHES)
def test_the_first_layer_stores_exact_keys_of_unchanged_tokens(model, cache):
    state = Denoiser(micro_job(model, make_spec(cache=cache)))
    written = state.canvas.clone()
    shift, changed_seen = model.info.logit_shift, 0
    before = state.canvas.clone()
    for event in denoise(state):
        start = 6 + 4 * event.block
        stop = {"prefix": 22, "dual": start + 4}[cache]
        rows = slice(0, 22) if event.block_step == 0 else slice(start - shift, stop)
        written[:, rows] = before[:, rows]
        same = (written == state.canvas)[0]
        store = state.branches[0].store
        for name, fresh in zip("kv", fresh_kv(model, model.embed(state.canvas)), strict=True):
            held = store.read(0, name)
            torch.testing.assert_close(held[:, :, same], fresh[:, :, same], atol=ATOL, rtol=0)
            if not same.all():
                changed_seen += 1
                assert (held[:, :, ~same] - fresh[:, :, ~same]).abs().max() > 1e-3
        before = state.canvas.clone()
    assert changed_seen > 0


def snapshots(model, cache):
    """(event, keys and values of every layer before the step, and after it)."""
    state = Denoiser(micro_job(model, make_spec(cache=cache)))
    data = state.branches[0].store._data
    before = {key: tensor.clone() for key, tensor in data.items()}
    for event in denoise(state):
        yield event, before, data
        before = {key: tensor.clone() for key, tensor in data.items()}


def test_inner_dual_steps_write_only_their_window(model):
    shift, moved = model.info.logit_shift, set()
    for event, before, after in snapshots(model, "dual"):
        if event.block_step == 0:
            continue
        window = slice(6 + 4 * event.block - shift, 10 + 4 * event.block)
        for key, tensor in after.items():
            outside = torch.ones(22, dtype=torch.bool)
            outside[window] = False
            assert torch.equal(tensor[:, :, outside], before[key][:, :, outside])
            if not torch.equal(tensor[:, :, window], before[key][:, :, window]):
                moved.add(key)
    assert moved == set(after)


def test_inner_prefix_steps_also_write_the_suffix(model):
    for event, before, after in snapshots(model, "prefix"):
        if event.block_step == 1 and event.block == 0:
            prefix = slice(0, 6 - model.info.logit_shift)
            for layer in (1, 2):
                was, now = before[layer, "k"], after[layer, "k"]
                assert torch.equal(now[:, :, prefix], was[:, :, prefix])
                assert not torch.equal(now[:, :, 10:], was[:, :, 10:])
            return


def tag_mismatches(cache, shift, kv, policy=None):
    """Steps at which the visible tags are not those of the cache's own schedule."""

    def expected(step, block, block_step, masked):
        at, start = torch.arange(22).expand(2, -1), 6 + 4 * block
        inside = (at >= start - shift) & (at < (22 if cache == "prefix" else start + 4))
        return at >= 0 if block_step == 0 else inside, torch.full((2,), 22)

    spec = make_spec(cache=cache, unmasker="threshold", knobs={"threshold.threshold": 0.3})
    return tagged_keys.mismatches(spec, expected, shift, kv, policy)


@pytest.mark.parametrize(("shift", "kv"), [(0, 4), (1, 2)])
@pytest.mark.parametrize("cache", CACHES)
def test_every_step_sees_one_key_a_position_of_the_right_age(cache, shift, kv):
    assert tag_mismatches(cache, shift, kv) == []


@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("family", ["shifted-mha", "shifted-gqa"])
def test_the_first_position_of_a_block_follows_the_rule(family, cache):
    """Also where a row before the block predicts it; a public defect commits it regardless."""
    spec = make_spec(cache=cache, unmasker="threshold", knobs={"threshold.threshold": 0.4})
    result, steps = tapped(model_of(family), spec)
    left_open = 0
    for event, (view, _, logits, _) in zip(result.events, steps, strict=True):
        sure = logits[0].softmax(-1).amax(-1)
        chosen = view.needs[0, (sure >= 0.4) | (sure == sure.max())]
        assert sorted(event.positions) == chosen.tolist()
        left_open += event.block_step == 0 and event.positions[0] > view.block.start
    assert left_open > 0


class WideDual(DualCache):
    def window(self, view):
        return slice(view.window_start, min(view.block.stop + 1, view.run.length))


def test_tags_catch_a_window_that_is_one_too_wide():
    assert tag_mismatches("dual", 0, 4, WideDual)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_block_that_ends_in_its_refresh_costs_no_extra_forward(family):
    events = run(model_of(family), make_spec(cache="dual", steps=4)).events
    assert [(e.block, e.kind) for e in events] == [(b, "full") for b in range(4)]
