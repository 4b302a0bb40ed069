"""FreeCache: where it is exact, what it freezes and when, and its sliding window."""

import numpy as np
import pytest
import torch

from engine.cache.methods.freecache import FreeCache
from engine.catalog import derive_plan
from engine.core.rows import ALL
from engine.generate.loop import Denoiser, denoise
from tests.engine.cache.methods.test_block_cache import loose
from tests.engine.cache.test_policies import second_step
from tests.engine.generate.test_batch import PROMPTS
from tests.support.micro import (
    ATOL,
    make_prompts,
    make_spec,
    micro_job,
    model_of,
    run,
    tapped,
    widest_gap,
)  # fmt: skip
from tests.support.torch_flops import counted

P, T = 6, 22
CLEAN, STALE = {"freecache.block": 4}, {"freecache.block": 4, "freecache.freeze": "stale"}
SLIDING = {"freecache.window": 5}


def free(own, **changes):
    return make_spec(**changes | {"cache": "freecache", "knobs": changes.get("knobs", {}) | own})


@pytest.mark.parametrize(
    ("unmasker", "block", "cfg"),
    [("quota", 4, 0), ("threshold", 8, 0), ("factor", 3, 0), ("frechet", 64, 0), ("quota", 1, 1.5)],
)
def test_one_layer_makes_clean_exact(family, unmasker, block, cfg):
    settings = loose(unmasker) | {"cfg_scale": float(cfg)}
    plain, expected = tapped(model_of(family, 1), make_spec(**settings))
    cached, steps = tapped(model_of(family, 1), free({"freecache.block": block}, **settings))
    assert widest_gap(expected, steps) < ATOL
    assert plain.reveals == cached.reveals


def test_one_layer_leaves_stale_inexact(family):
    """What a block's last step reveals stays a mask to all that comes after."""
    _, expected = tapped(model_of(family, 1), make_spec())
    _, steps = tapped(model_of(family, 1), free(STALE))
    gaps = [widest_gap([a], [b]) for a, b in zip(expected, steps, strict=True)]
    assert max(gaps[:4]) < ATOL
    assert gaps[4] > 1e-3


def test_three_layers_make_clean_differ(model):
    _, expected = tapped(model, make_spec())
    _, steps = tapped(model, free(CLEAN))
    gaps = [widest_gap([a], [b]) for a, b in zip(expected, steps, strict=True)]
    assert gaps[0] < ATOL
    assert gaps[1] > 1e-6


@pytest.mark.parametrize(("knobs", "extra"), [(CLEAN, 4), (STALE, 0)])
def test_rows_follow_the_closed_form(model, knobs, extra):
    """T + (n_0 - 1)(T - P) + sum over later blocks of n_b (T - s_b), S more a block if clean."""
    shift = model.info.logit_shift
    settings = {"unmasker": "threshold", "knobs": {"threshold.threshold": 0.25}}
    result, steps = tapped(model, free(knobs, **settings))
    spent = [sum(e.block == b for e in result.events) for b in range(4)]
    assert max(spent) > 1
    expected = T + (spent[0] - 1) * (T - P + shift)
    expected += sum(spent[b] * (T - P - 4 * b + shift) + extra for b in (1, 2, 3))
    assert sum(e.rows for e in result.events) == expected
    assert [e.kind for e in result.events] == ["full"] + ["partial"] * (len(steps) - 1)
    for event, (_, plan, _, _) in zip(result.events[1:], steps[1:], strict=True):
        frozen = event.block - (event.block_step == 0 and extra > 0)
        assert plan.rows == slice(P + 4 * frozen - shift, T)


@pytest.mark.parametrize("knobs", [CLEAN, STALE, {"freecache.block": 5}])
def test_rows_before_the_window_are_frozen_for_good(model, knobs):
    tapping = tapped(model, free(knobs))[1]
    state = Denoiser(micro_job(model, free(knobs)))
    data, moved = state.branches[0].store._data, 0
    before = {}
    for event, (_, plan, _, _) in zip(denoise(state), tapping, strict=True):
        start = 0 if plan.rows is ALL else plan.rows.start
        for key, tensor in data.items():
            if event.step:
                assert torch.equal(tensor[:, :, :start], before[key][:, :, :start])
                moved += not torch.equal(tensor[:, :, start:], before[key][:, :, start:])
            before[key] = tensor.clone()
    assert moved > 10


@pytest.mark.parametrize("block", [16, 64])
@pytest.mark.parametrize("freeze", ["clean", "stale"])
def test_a_single_block_is_the_prefix_cache_of_one_block(model, block, freeze):
    prefix, expected = tapped(model, make_spec(cache="prefix", block_length=16))
    knobs = {"freecache.block": block, "freecache.freeze": freeze}
    cached, steps = tapped(model, free(knobs, block_length=16))
    assert widest_gap(expected, steps) == 0
    assert prefix.reveals == cached.reveals
    assert [e.rows for e in prefix.events] == [e.rows for e in cached.events]
    several = [tapped(model, free({"freecache.block": n}))[1] for n in (4, block)]
    assert widest_gap(*several) > 1e-6


def test_after_the_full_step_a_window_repeats_it_while_nothing_changes(model):
    policy = lambda: FreeCache(block=4)  # noqa: E731
    first, second, _ = second_step(model, policy())
    torch.testing.assert_close(second, first, atol=ATOL, rtol=0)
    first, second, _ = second_step(model, policy(), spoil=("k", "v"))
    assert (first - second).abs().max() > 1e-3


@pytest.mark.parametrize("unmasker", ["quota", "threshold", "factor", "frechet"])
def test_a_window_as_wide_as_the_canvas_is_plain_decoding(family, unmasker):
    settings = loose(unmasker)
    plain, expected = tapped(model_of(family), make_spec(**settings))
    cached, steps = tapped(model_of(family), free({"freecache.window": T}, **settings))
    assert widest_gap(expected, steps) < ATOL
    assert plain.reveals == cached.reveals
    assert [e.rows for e in cached.events] == [T] * len(steps)
    _, narrow = tapped(model_of(family), free({"freecache.window": 7}, **settings))
    assert widest_gap(expected, narrow) > 1e-6


def test_a_sliding_window_is_centred_on_the_last_revealed_position(model):
    result, steps = tapped(model, free(SLIDING))
    for event, (view, plan, _, _) in zip(result.events[1:], steps[1:], strict=True):
        last = int(view.masked[0].int().argmax()) - 1
        assert plan.rows == slice(max(last - 5, 0), min(last + 5, T))
        assert plan.keys == (ALL if last + 5 >= T else slice(0, last + 5))
        assert plan.key_mask is None
        assert event.rows <= 10


@pytest.mark.parametrize("family", ["mha", "shifted-gqa"])
def test_a_window_that_cuts_the_block_is_refused_and_the_least_one_named_runs(family):
    with pytest.raises(ValueError, match=r"freecache\.window: 4 .* least valid value is 5"):
        derive_plan(free({"freecache.window": 4}))
    derive_plan(free({"freecache.window": 5}))
    for unmasker in ("quota", "threshold"):
        result = run(model_of(family), free(SLIDING, unmasker=unmasker), PROMPTS)
        assert not result.state.masked.any()


@pytest.mark.parametrize("knobs", [CLEAN, STALE, SLIDING, {"freecache.block": 1}])
def test_the_counter_agrees_with_torch(knobs):
    job = micro_job(model_of("shifted-gqa"), free(knobs), make_prompts(6, 9), eager=True)
    assert len({flops for _, flops in counted(denoise(Denoiser(job)), 7)}) > 1


def test_guidance_branches_keep_their_own_frozen_rows(model):
    spec = free(CLEAN, cfg_scale=1.0)
    state = Denoiser(micro_job(model, spec))
    list(denoise(state))
    first, second = (branch.store._data[1, "k"][:, :, :P] for branch in state.branches)
    assert not torch.equal(first, second)
    assert not np.shares_memory(first.numpy(), second.numpy())
