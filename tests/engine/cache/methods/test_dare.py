"""DARE: where it is exact, what it reuses, and how it counts a row's reuses."""

from functools import cache

import numpy as np
import pytest
import torch

from engine.cache.methods.dare import DareKv, DareO
from engine.cache.methods.fast_dllm import DualCache, PrefixCache
from engine.cache.methods.none import NoCache
from engine.cache.stack import Stack
from engine.catalog import policies
from engine.core.rows import ALL, to_mask
from engine.generate.loop import Denoiser, denoise
from engine.record.recorder import StepRecorder
from tests.support.micro import (
    ATOL,
    TWO_BLOCKS,
    make_profile,
    make_spec,
    micro_job,
    model_of,
    run,
    tapped,
    widest_gap,
)  # fmt: skip

FORMS = [DareKv, DareO]
ALWAYS, NEVER = {"lo": 1.96, "hi": 3}, {"lo": 0, "hi": 1e-7}  # thresholds of 2 and of the floor
BASES = [NoCache, PrefixCache, DualCache, policies()["freecache"]]
PAIRS = list(zip(FORMS * 2, BASES, strict=True)) + list(zip(FORMS[::-1] * 2, BASES, strict=True))


def dare(form, drifts=None, layers=3, **knobs):
    """A policy with thresholds that let through some rows: of every layer, DARE-O from layer 1."""
    policy = form(**{"skip_first_layers": int(form is DareO)} | knobs)
    policy.set_profile(make_profile(layers, **(drifts or {})))
    return policy


@cache
def beneath(model, base, cfg_scale=0.0):
    """The steps of a run of a cache without DARE, made once; tests must not change them."""
    return tapped(model, make_spec(cfg_scale=cfg_scale, **TWO_BLOCKS), policy=base)[1]


def gap(model, policy, base=NoCache, cfg_scale=0.0):
    """Largest difference in logits between a policy and the cache beneath it."""
    spec = make_spec(cfg_scale=cfg_scale, **TWO_BLOCKS)
    return widest_gap(beneath(model, base, cfg_scale), tapped(model, spec, policy=policy)[1])


def noted(policy, notes):
    """The policy, with (layer, active rows, plan) appended to `notes`."""
    plan = policy.plan

    def listening(layer, probe):
        result = plan(layer, probe)
        notes.append((layer, probe.rows, result))
        return result

    policy.plan = listening
    return policy


@pytest.mark.parametrize(("form", "window"), PAIRS)
def test_a_quantile_of_zero_is_the_cache_beneath_bitwise(family, form, window):
    model = model_of(family)
    assert gap(model, lambda: Stack(window(), form(qbar=0.0)), window) == 0
    assert gap(model, lambda: Stack(window(), dare(form)), window) > 1e-6


@pytest.mark.parametrize("cfg_scale", [0.0, 1.5])
@pytest.mark.parametrize("form", FORMS)
def test_a_refresh_in_every_step_is_the_cache_beneath(model, form, cfg_scale):
    assert gap(model, lambda: dare(form, ALWAYS, refresh_interval=1), cfg_scale=cfg_scale) < ATOL
    assert gap(model, lambda: dare(form, ALWAYS, refresh_interval=2), cfg_scale=cfg_scale) > 1e-6


def test_one_layer_reuses_exact_keys_of_unchanged_tokens(family):
    """Queries of layer 0 depend on the token alone; at the floor only unchanged ones are kept."""
    model = model_of(family, 1)
    assert gap(model, lambda: dare(DareKv, NEVER, 1)) < ATOL
    assert gap(model, lambda: dare(DareKv, ALWAYS, 1)) > 1e-6
    assert gap(model, lambda: dare(DareO, NEVER, 1, skip_first_layers=0)) > 1e-6


@pytest.mark.parametrize("form", FORMS)
def test_guidance_branches_share_nothing(form):
    spec = make_spec(cfg_scale=1.0)
    state = Denoiser(micro_job(model_of("gqa"), spec, policy=lambda: dare(form)))
    next(steps := denoise(state))
    next(steps)
    first, second = state.branches
    assert first.policy is not second.policy
    queries = [branch.store.read(2, "q0", ALL) for branch in (first, second)]
    assert not torch.equal(*queries)


def kept_after_each_step(model, policy, sites):
    state = Denoiser(micro_job(model, make_spec(), policy=lambda: policy))
    for event in denoise(state):
        data = state.branches[0].store._data
        yield event, {key: t.clone() for key, t in data.items() if key[1] in sites}


@pytest.mark.parametrize(("form", "sites"), [(DareKv, "kv"), (DareO, ("attn",))])
@pytest.mark.parametrize("on_dual", [False, True])
def test_with_no_threshold_nothing_changes_after_the_first_step(model, form, sites, on_dual):
    def changes(drifts):
        reuse = dare(form, drifts, skip_first_layers=0)
        policy = Stack(DualCache(), reuse) if on_dual else reuse
        before, found = {}, set()
        for event, now in kept_after_each_step(model, policy, sites):
            if event.block_step if on_dual else event.step:
                found |= {key for key in now if not torch.equal(now[key], before[key])}
            before = now
        return found

    assert changes(ALWAYS) == set()
    assert len(changes(None)) == 3 * len(sites)


def recomputed(plan, form, active):
    rows = plan.k if form is DareKv else plan.attn
    return to_mask(active if rows is ALL else rows, 1, 22)[0]


@pytest.mark.parametrize("window", [NoCache, PrefixCache, DualCache])
@pytest.mark.parametrize("form", FORMS)
def test_rows_within_the_window_are_reused_for_several_steps(model, form, window):
    notes = []
    policy = noted(dare(form), notes)
    run(model, make_spec(), policy=lambda: Stack(window(), policy))
    ages, reused, entered, oldest = np.zeros((3, 22), int), np.zeros(3), np.zeros(3), 0
    for layer, active, plan in notes:
        inside, fresh = to_mask(active, 1, 22)[0], recomputed(plan, form, active)
        assert not (fresh & ~inside).any()
        ages[layer] = np.where(fresh, 0, np.where(inside, ages[layer] + 1, ages[layer]))
        entered[layer] += int(inside.sum())
        reused[layer] += int((inside & ~fresh).sum())
        oldest = max(oldest, ages[layer].max())
    assert oldest > 1
    assert (reused / entered)[1:].min() > 0.05
    assert (reused / entered).max() < 0.95


@pytest.mark.parametrize("form", FORMS)
def test_a_block_start_of_the_cache_beneath_refreshes_every_row(model, form):
    notes = []
    policy = noted(dare(form, ALWAYS), notes)
    result = run(model, make_spec(), policy=lambda: Stack(DualCache(), policy))
    for event in result.events:
        for _, active, plan in notes[3 * event.step + 1 : 3 * event.step + 3]:
            reused = ~recomputed(plan, form, active) & to_mask(active, 1, 22)[0]
            assert bool(reused.any()) == (event.block_step > 0) == (event.kind == "partial")


@pytest.mark.parametrize("form", FORMS)
def test_a_refresh_recomputes_every_row(model, form):
    notes = []
    policy = noted(dare(form, refresh_interval=3), notes)
    events = run(model, make_spec(), policy=lambda: policy).events
    for event in events:
        plans = [plan for *_, plan in notes[3 * event.step : 3 * event.step + 3]]
        reused = not all(recomputed(plan, form, ALL).all() for plan in plans)
        assert reused == (event.step % 3 > 0) == (event.kind == "partial")


@pytest.mark.parametrize("form", FORMS)
def test_skipped_layers_reuse_nothing(model, form):
    notes = []
    policy = noted(dare(form, ALWAYS, skip_first_layers=1), notes)
    run(model, make_spec(), policy=lambda: policy)
    for layer, _, plan in notes[3:]:
        assert bool(recomputed(plan, form, ALL).all()) == (layer == 0)
    assert gap(model, lambda: dare(form, ALWAYS, skip_first_layers=3)) < 1e-12
    assert gap(model, lambda: dare(form, ALWAYS, skip_first_layers=2)) > 1e-6


@pytest.mark.parametrize("form", FORMS)
def test_a_stack_on_no_cache_equals_the_policy_alone(model, form):
    alone, expected = tapped(model, make_spec(), policy=lambda: dare(form))
    stacked, steps = tapped(model, make_spec(), policy=lambda: Stack(NoCache(), dare(form)))
    assert widest_gap(expected, steps) == 0
    assert [e.kind for e in stacked.events] == [e.kind for e in alone.events]
    assert {e.kind for e in alone.events[1:]} == {"partial"}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("window", [NoCache, DualCache])
def test_a_recorded_plan_is_what_was_computed_where_no_query_moves(model, form, window):
    """K and V that nobody stores are not computed if no row attends."""
    policy = dare(form, skip_first_layers=0)
    policy.thresholds = (2.0,) * model.info.layers
    ran = run(model, make_spec(), recorder=StepRecorder(), policy=lambda: Stack(window(), policy))
    length = ran.ids.shape[1]
    for event in ran.events:
        planned = np.unpackbits(event.recording.plan, axis=-1).sum(-1) / length
        assert planned.mean() == pytest.approx(event.recomputed)
    assert min(event.recomputed for event in ran.events) <= 0.5
