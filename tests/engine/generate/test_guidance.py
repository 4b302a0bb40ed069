"""Classifier-free guidance: its formula, and branches that share nothing."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from engine.generate.loop import Denoiser, denoise
from tests.support.micro import (
    ATOL,
    MASK,
    TWO_BLOCKS,
    make_prompts,
    make_spec,
    micro_job,
    run,
    tapped,
)
from tests.support.reference import reference_logits

CACHES = ["none", "prefix", "dual"]


@pytest.mark.parametrize("cache", CACHES)
def test_scale_zero_is_one_branch_and_plain_decoding(model, cache):
    spec = make_spec(cache=cache, **TWO_BLOCKS)
    plain, off = run(model, spec), run(model, replace(spec, cfg_scale=0))
    assert len(off.state.branches) == 1
    assert plain.reveals == off.reveals
    guided = run(model, replace(spec, cfg_scale=4.0))
    assert {e.forwards for e in guided.events} == {2}
    assert not np.array_equal(plain.ids, guided.ids)


@pytest.mark.parametrize("cache", CACHES)
def test_a_vanishing_scale_gives_the_plain_logits(model, cache):
    short = {"cache": cache, "gen_length": 4, "steps": 4}
    _, plain = tapped(model, make_spec(**short))
    _, guided = tapped(model, make_spec(**short, cfg_scale=1e-12))
    gap = (plain[0][2] - guided[0][2])[..., :MASK].abs().max()
    assert gap < ATOL


@pytest.mark.parametrize("scale", [0.5, 3.0])
def test_guided_logits_follow_the_formula(model, scale):
    fixed = ((2, 9), (9, 10))
    _, steps = tapped(model, make_spec(cfg_scale=scale, fixed=fixed, temperature=1.0))
    given = [*range(6), 8, 15]
    for view, _, logits, canvas in steps:
        masked = canvas.clone()
        masked[:, given] = MASK
        rows = view.needs[0] - model.info.logit_shift
        z, u = (reference_logits(model, c)[0, rows] for c in (canvas, masked))
        expected = (u + (scale + 1) * (z - u))[:, :MASK]
        torch.testing.assert_close(logits[0, :, :MASK], expected, atol=1e-8, rtol=0)


def test_the_unconditional_branch_does_not_depend_on_the_prompt(model):
    """With two prompts of one length, only the conditional logits of the first step differ."""
    spec, prompts = make_spec(gen_length=4, steps=4), [make_prompts(6, seed=s) for s in (1, 2)]
    first = [tapped(model, replace(spec, cfg_scale=2.0), one)[1][0] for one in prompts]
    plain = [tapped(model, spec, one)[1][0] for one in prompts]
    guided_gap = first[0][2] - first[1][2]
    plain_gap = plain[0][2] - plain[1][2]
    torch.testing.assert_close(guided_gap[..., :MASK], 3 * plain_gap[..., :MASK], atol=1e-8, rtol=0)


@pytest.mark.parametrize("cache", ["prefix", "dual"])
def test_branch_stores_never_alias(model, cache):
    state = Denoiser(micro_job(model, make_spec(cache=cache, cfg_scale=1.0)))
    steps = denoise(state)
    next(steps)
    ours, theirs = (branch.store._data for branch in state.branches)
    before = {key: tensor.clone() for key, tensor in theirs.items()}
    for tensor in ours.values():
        tensor.zero_()
    assert all(torch.equal(theirs[key], before[key]) for key in theirs)
    assert all(before[key].abs().max() > 0 for key in theirs)
    assert state.branches[0].policy is not state.branches[1].policy


@pytest.mark.parametrize("cache", ["prefix", "dual"])
def test_branches_hold_different_keys_of_the_prompt(model, cache):
    state = Denoiser(micro_job(model, make_spec(cache=cache, cfg_scale=1.0)))
    next(denoise(state))
    ours, theirs = (branch.store.read(0, "k")[:, :, :6] for branch in state.branches)
    assert (ours - theirs).abs().max() > 1e-3


def exact_dllm(interval):
    return {
        "dllm_cache.prompt_interval": 1,
        "dllm_cache.response_interval": 1,
        "dllm_cache.cfg_interval": interval,
    }


def test_the_gap_that_is_kept_counts_as_memory(model):
    sizes = []
    for interval in (1, 3):
        spec = make_spec(cache="dllm_cache", knobs=exact_dllm(interval), cfg_scale=2.0)
        state = run(model, spec).state
        sizes.append(state.cached_bytes())
    batch, length = state.ids.shape
    assert sizes[1] - sizes[0] == batch * length * model.info.vocab_size * model.dtype.itemsize


def test_guidance_every_so_many_steps_reuses_the_last_gap(model):
    """After five steps, z + scale (z' - u') with the gap of the last step with both branches."""
    scale = 2.0
    spec = make_spec(cache="dllm_cache", knobs=exact_dllm(3), cfg_scale=scale)
    ran, steps = tapped(model, spec)
    assert [e.forwards for e in ran.events[:10]] == [2, 2, 2, 2, 2, 1, 2, 1, 1, 2]
    gaps = None
    stale = []
    for event, (view, _, logits, canvas) in zip(ran.events, steps, strict=True):
        z, u = (reference_logits(model, c)[0] for c in (canvas, _unconditional(canvas, view)))
        if event.forwards == 2:
            gaps = z - u
        rows = (view.needs[0] - model.info.logit_shift)[view.real[0]]
        expected = (z + scale * gaps)[rows][:, :MASK]
        got = logits[0, view.real[0], :MASK]
        torch.testing.assert_close(got, expected, atol=1e-8, rtol=0)
        fresh = (z + scale * (z - u))[rows][:, :MASK]
        stale.append((got - fresh).abs().max() > 1e-3)
    assert any(stale)


def _unconditional(canvas, view):
    """The unconditional canvas: prompt masked, decoded tokens visible."""
    out = canvas.clone()
    out[:, : view.run.prompt_length] = MASK
    return out


def test_the_default_runs_both_branches_in_every_step(model):
    spec = make_spec(cache="dllm_cache", knobs=exact_dllm(1), cfg_scale=2.0)
    assert run(model, spec).reveals == run(model, make_spec(cfg_scale=2.0)).reveals
    rare = make_spec(cache="dllm_cache", knobs=exact_dllm(64), cfg_scale=2.0)
    assert {e.forwards for e in run(model, rare).events[5:]} == {1}
