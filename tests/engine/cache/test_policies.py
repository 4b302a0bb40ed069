"""The base classes of policies: row sets of every shape, stored sites, stacks, exact settings."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch

from engine.cache.base import CachePolicy, LayerPlan, StepPlan
from engine.cache.methods.fast_dllm import DualCache, PrefixCache
from engine.cache.methods.none import NoCache
from engine.cache.stack import Stack
from engine.cache.store import Site
from engine.catalog import policies
from engine.generate.loop import Denoiser, denoise
from engine.models.flops import FlopCounter
from engine.models.ops import drift
from engine.record.recorder import Recorder
from tests.support.micro import (
    ATOL,
    NONE,
    TWO_BLOCKS,
    Planned,
    full_policies,
    make_model,
    make_prompts,
    make_spec,
    micro_job,
    model_of,
    random_rows,
    run,
    tapped,
    widest_gap,
)
from tests.support.reference import reference_logits

PROMPTS = make_prompts(6, 6)
WINDOW = slice(3, 13)


def second_step(model, policy, spoil=None, change=None, prompts=PROMPTS):
    """Logits of the second forward where nothing was committed in between."""
    state = Denoiser(micro_job(model, make_spec(), prompts, policy=lambda: policy))
    first = _forward(state, 0)
    for key, tensor in state.branches[0].store._data.items():
        if spoil and key[1] in spoil:
            tensor.zero_()
    if change is not None:
        state.canvas[:, change] = 7
    state.step_index = 1
    return first, _forward(state, 1), state.canvas


@torch.inference_mode()
def _forward(state, block_step):
    view = state._view(slice(6, 10), 0, block_step)
    return state._forward(
        state.branches[0], view, state.canvas, Recorder(), FlopCounter(state.run.info)
    )[1]


def everywhere(layer, probe):
    return LayerPlan()


def nothing(layer, probe):
    return LayerPlan(NONE, NONE, NONE, NONE)


def slices(layer, probe):
    part = slice(6, 9)
    return LayerPlan(k=part, v=NONE, attn=slice(7, 9), ffn=part)


def indices(layer, probe):
    active = torch.arange(22)[probe.rows] if isinstance(probe.rows, slice) else torch.arange(22)
    if isinstance(probe.rows, torch.Tensor):
        return LayerPlan(k=probe.rows[:, 1:4], v=probe.rows, attn=probe.rows[:, ::2], ffn=NONE)
    rows = [random_rows(10 * layer + i, 2, active, 1 + i) for i in range(4)]
    return LayerPlan(*rows)


def sliced_window(view):
    return WINDOW


def indexed_window(view):
    always = torch.arange(4, 11)
    return torch.cat((always.expand(2, -1), torch.tensor([[12, 15], [11, 21]])), 1)


def block_window(view):
    return slice(view.window_start, view.block.stop)


WINDOWS = [None, sliced_window, indexed_window, block_window]
PLANS = [everywhere, nothing, slices, indices]


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("window", WINDOWS)
def test_any_rows_reproduce_the_full_forward_while_nothing_changes(model, window, plan):
    first, second, _ = second_step(model, Planned(window, plan))
    torch.testing.assert_close(second, first, atol=ATOL, rtol=0)


CONTROLS = [(sliced_window, everywhere, ("k", "v")), (None, nothing, ("attn", "ffn")),
            (indexed_window, indices, ("attn", "ffn")), (None, slices, ("v",)),
            (None, indices, ("k",))]  # fmt: skip


@pytest.mark.parametrize(("window", "plan", "spoil"), CONTROLS)
def test_a_zeroed_store_changes_the_logits(model, window, plan, spoil):
    first, second, _ = second_step(model, Planned(window, plan), spoil)
    assert (first - second).abs().max() > 1e-3


def test_recomputing_every_row_reads_no_stale_value(model):
    _, second, canvas = second_step(model, Planned(None, everywhere), "kv", change=[7, 20])
    rows = torch.arange(6, 10) - model.info.logit_shift
    expected = reference_logits(model, canvas)[:, rows]
    torch.testing.assert_close(second, expected, atol=ATOL, rtol=0)


def test_rows_left_out_keep_last_steps_outputs_bitwise(model):
    first, second, canvas = second_step(model, Planned(None, nothing), change=[20])
    assert torch.equal(first, second)
    rows = torch.arange(6, 10) - model.info.logit_shift
    assert (reference_logits(model, canvas)[:, rows] - second).abs().max() > 1e-6


def test_rows_left_out_need_a_stored_site(model):
    for kept, plan in ((("k", "v"), LayerPlan(ffn=NONE)), (("attn", "ffn"), LayerPlan(k=NONE))):
        policy = Planned(None, lambda layer, probe, plan=plan: plan, kept)
        with pytest.raises((AssertionError, KeyError)):
            second_step(model, policy)


@dataclass
class SiteKeeper(CachePolicy):
    """Keeps sites of its own, and notes its steps and the commits."""

    name = "site_keeper"
    stackable_on = ("dual", "prefix")

    def __post_init__(self):
        self.drifts, self.commits, self.steps = [], [], []

    def sites(self, run):
        return Site("k"), Site("v"), Site("head", run.info.head_dim), Site("late", 3, start=4)

    def begin_step(self, view):
        self.steps.append((view.block_index, view.block_step))
        return StepPlan()

    def plan(self, layer, probe):
        head = probe.project("q", heads=slice(0, 1))[:, :, 0]
        old = probe.swap("head", head)
        if layer == 0:
            self.drifts.append(None if old is None else drift(head, old))
        return LayerPlan()

    def end_step(self, view, confidence, committed):
        assert confidence.shape == committed.shape == view.needs.shape
        self.commits.append(view.needs[0, committed[0]].tolist())

    @classmethod
    def exact(cls):
        return cls()


def test_swap_returns_the_old_values_and_end_step_gets_the_commits(model):
    policy = SiteKeeper()
    plain, result = run(model, make_spec()), run(model, make_spec(), policy=lambda: policy)
    assert np.array_equal(plain.ids, result.ids)
    assert policy.commits == [e.positions.tolist() for e in result.events]
    assert policy.drifts[0] is None
    for before, moved in zip(policy.commits, policy.drifts[1:], strict=False):
        still = [p for p in range(22) if p not in before]
        assert moved[0, still].abs().max() < ATOL
        assert moved[0, before].min() > 1e-6


@pytest.mark.parametrize("window", [DualCache, PrefixCache])
def test_a_stack_that_reuses_nothing_is_its_window_bitwise(model, window):
    below, expected = tapped(model, make_spec(), policy=window)
    reuse = SiteKeeper()
    stacked, steps = tapped(model, make_spec(), policy=lambda: Stack(window(), reuse))
    assert widest_gap(expected, steps) == 0
    assert [(e.kind, e.rows) for e in stacked.events] == [(e.kind, e.rows) for e in below.events]
    assert reuse.steps == [(e.block, e.block_step) for e in stacked.events]
    assert len(reuse.commits) == 16


def freezing(layer, probe):
    inside = isinstance(probe.rows, slice)
    return LayerPlan(NONE, NONE, NONE, NONE) if inside else LayerPlan()


def test_a_stack_that_reuses_everything_differs(model):
    @dataclass
    class Frozen(Planned):
        name = "frozen_rows"
        stackable_on = ("dual",)

    _, expected = tapped(model, make_spec(), policy=DualCache)
    policy = lambda: Stack(DualCache(), Frozen(None, freezing))  # noqa: E731
    _, steps = tapped(model, make_spec(), policy=policy)
    assert widest_gap(expected[:2], steps[:2]) > 1e-6


def same_index(layer, probe):
    """Another index of rows for each layer, the same for all sites."""
    active = torch.arange(probe.length)
    if isinstance(probe.rows, slice):
        active = active[probe.rows]
    return LayerPlan(*[random_rows(layer, len(probe.h), active, 5)] * 4)


def index_window(view):
    return random_rows(9, 2, torch.arange(6, 22), 12)


SUM = ("k", "v", "branch")


@pytest.mark.parametrize(
    ("rows", "layer_rows"),
    [(None, same_index), (lambda view: slice(5, 15), same_index), (index_window, None)],
)
def test_the_sum_of_both_outputs_serves_as_well_as_each(model, rows, layer_rows):
    expected, found = (
        second_step(model, Planned(rows, layer_rows, kept=kept), change=[7, 8])[1]
        for kept in (("k", "v", "attn", "ffn"), SUM)
    )
    whole = second_step(model, Planned(), change=[7, 8])[1]
    assert (found - expected).abs().max() < ATOL
    assert (found - whole).abs().max() > 1e-6


def test_a_stored_sum_does_not_change_the_rounding_of_a_full_step():
    model = make_model(2).bfloat16()
    each, joint = (second_step(model, Planned(kept=kept))[1] for kept in (Planned.kept, SUM))
    assert torch.equal(each, joint)


@pytest.mark.parametrize(("window", "reuse"), [(NoCache, SiteKeeper), (DualCache, PrefixCache)])
def test_policies_that_choose_the_same_rows_are_not_stacked(window, reuse):
    with pytest.raises(
        ValueError, match=f"cache: .*{reuse.name} cannot be stacked on {window.name}"
    ):
        Stack(window(), reuse())


@pytest.mark.parametrize("unmasker", ["quota", "threshold"])
@pytest.mark.parametrize("name", [n for n, c in full_policies().items() if c.exact() is not None])
def test_exact_settings_of_every_policy_equal_no_cache(model, name, unmasker):
    spec = make_spec(unmasker=unmasker, **TWO_BLOCKS)
    plain, expected = tapped(model, spec)
    exact, steps = tapped(model, spec, policy=policies()[name].exact)
    assert plain.reveals == exact.reveals
    assert widest_gap(expected, steps) < ATOL


@pytest.mark.parametrize("name", full_policies())
def test_two_runs_stepped_in_turns_give_what_they_give_alone(name):
    model = model_of("shifted-gqa")
    changes = {"cache": name, "temperature": 1.0, "unmasker": "threshold", **TWO_BLOCKS}
    specs = [make_spec(**changes, seed=s) for s in (1, 2)]
    alone = [run(model, spec) for spec in specs]
    states = [Denoiser(micro_job(model, spec)) for spec in specs]
    streams = [denoise(state) for state in states]
    while any([next(stream, None) is not None for stream in streams]):
        pass
    for state, result in zip(states, alone, strict=True):
        assert np.array_equal(state.ids, result.ids)
    assert not np.array_equal(alone[0].ids, alone[1].ids)


@pytest.mark.parametrize("name", full_policies())
def test_planned_rows_hold_the_rows_whose_logits_are_needed(model, name):
    _, steps = tapped(model, make_spec(cache=name, **TWO_BLOCKS))
    for view, plan, _, _ in steps:
        if isinstance(plan.rows, slice):
            rows = view.logit_rows
            assert plan.rows.start <= int(rows.min())
            assert int(rows.max()) < plan.rows.stop <= 14
