"""What a policy plans for each region, against what it did; and its facts by layer."""

import math

import numpy as np
import pytest

from engine.cache.base import CachePolicy, LayerPlan, StepPlan
from engine.cache.calibration.layer_budget import preset
from engine.cache.store import Site
from engine.core.events import KINDS
from engine.core.regions import recomputed_kinds, region_rows
from engine.core.rows import ALL
from engine.record.recorder import StepRecorder
from tests.engine.trace.test_trace import ended, started
from tests.support.micro import full_policies, make_profile, make_spec, micro_job, model_of, run
from tests.support.traces import trace_of

PROMPT, LENGTH = 6, 18
THREE_BLOCKS = {"gen_length": 12, "block_length": 4, "steps": 12}
STATIC = ["none", "prefix", "dual", "freecache", "dkv_cache", "dllm_cache", "spa_cache"]


def kinds(family, policy=None, **changes):
    """Kinds planned and done in each step, [S, 3] names."""
    model, spec = model_of(family), make_spec(**THREE_BLOCKS | changes)
    events = run(model, spec, recorder=StepRecorder(), policy=policy).events
    plans = np.stack([event.recording.plan for event in events])
    starts = [PROMPT + spec.block_length * event.block for event in events]
    shift = model.info.logit_shift
    areas = [region_rows(PROMPT, slice(s, s + spec.block_length), LENGTH, shift) for s in starts]
    planned = np.stack([event.recording.planned for event in events])
    done = recomputed_kinds(plans, areas.__getitem__, LENGTH)
    return np.array(KINDS)[planned], np.array(KINDS)[done]


@pytest.mark.parametrize("cache", STATIC)
def test_policies_that_follow_a_schedule_do_what_they_plan(family, cache):
    planned, did = kinds(family, cache=cache)
    assert np.array_equal(planned, did)


KNOBS = [
    ("prefix", {"refresh_interval": 2}),
    ("dual", {"refresh_interval": 3}),
    ("freecache", {"block": 4}),
    ("freecache", {"block": 4, "freeze": "stale"}),
    ("freecache", {"window": 6}),
    ("dkv_cache", {"reload_interval": 2}),
    ("dkv_cache", {"reload_interval": 1}),
    ("dllm_cache", {"prompt_interval": 4, "response_interval": 2, "recompute_ratio": 0.125,
                    "layer0_dense": False}),
    ("dllm_cache", {"prompt_interval": 3, "case2": "paper"}),
    ("dllm_cache", {"recompute_ratio": 0.0, "layer0_dense": False}),
    ("dllm_cache", {"recompute_ratio": 0.0, "response_interval": None, "layer0_dense": False}),
    ("dllm_cache", {"recompute_ratio": 1.0}),
    ("spa_cache", {"refresh_interval": 6, "response_interval": 2, "warm_up": 1}),
    ("spa_cache", {"budget": "uniform", "peak_ratio": 1.0, "refresh_interval": 6}),
    ("spa_cache", {"budget": "uniform", "peak_ratio": 1.0, "refresh_interval": 6,
                   "response_interval": 3, "kv_mode": "sparse"}),
    ("d2_cache", {"rollout_p": 1.0}),
    ("dare_kv", {"skip_first_layers": 3}),
]  # fmt: skip


@pytest.mark.parametrize(("cache", "knobs"), KNOBS)
@pytest.mark.parametrize("family", ["mha", "shifted-gqa"])
def test_they_do_so_at_other_settings(family, cache, knobs):
    named = {f"{cache}.{name}": value for name, value in knobs.items()}
    planned, did = kinds(family, cache=cache, knobs=named)
    assert np.array_equal(planned, did)


@pytest.mark.parametrize(("cache", "regions"), [("prefix", 3), ("dual", 3), ("dkv_cache", 1)])
def test_nothing_is_planned_for_blocks_without_masks(cache, regions):
    """dkv_cache does not compute the given tokens after the block, which its plan does not know."""
    planned, did = kinds("mha", cache=cache, fixed=tuple((place, 5) for place in range(8, 12)))
    assert np.array_equal(planned[:, :regions], did[:, :regions])


def test_the_plan_of_another_policy_differs():
    planned, _ = kinds("mha", cache="dual")
    _, did = kinds("mha", cache="prefix")
    assert (planned != did).any()


@pytest.mark.parametrize("cache", STATIC)
def test_a_run_that_ends_early_may_miss_a_planned_refresh(cache):
    planned, did = kinds("mha", cache=cache, unmasker="threshold")
    for plan, was in zip(planned.ravel(), did.ravel(), strict=True):
        assert plan == was or (plan, was) == ("reuse", "frozen")


class Window(CachePolicy):
    """Recomputes the block, and says nothing of what it plans."""

    name = "window"

    def sites(self, run):
        return Site("k"), Site("v")

    def begin_step(self, view):
        if view.step == 0:
            return super().begin_step(view)
        return StepPlan(rows=slice(view.window_start, view.block.stop), kind="partial")


class HalfOfTheWindow(Window):
    """Recomputes K and V of some of the rows that enter."""

    name = "half"

    def plan(self, layer, probe):
        part = probe.rows if probe.rows is ALL else slice(probe.rows.start, probe.rows.stop - 1)
        return LayerPlan(k=part, v=part)


class Within(Window):
    """Chooses within layers only, and leaves the rows of a step to the base class."""

    name = "within"

    def begin_step(self, view):
        self.step = view.step
        return CachePolicy.begin_step(self, view)

    def plan(self, layer, probe):
        part = ALL if self.step == 0 else slice(4, probe.length)
        return LayerPlan(k=part, v=part)


def test_without_a_plan_of_its_own_a_policy_is_planned_by_its_step_plan(family):
    planned, did = kinds(family, Window)
    assert (planned[0] == "full").all()
    assert (planned[1:] == ["reuse", "full", "reuse"]).all()
    rests = did[1:, [0, 2]]
    assert np.isin(rests, ("reuse", "frozen")).all()
    assert (did[1:, 1] == "full").all()


@pytest.mark.parametrize("policy", [HalfOfTheWindow, Within])
def test_full_is_not_planned_for_a_policy_that_chooses_within_layers(family, policy):
    planned, did = kinds(family, policy)
    assert (planned[0] == "full").all()
    assert not (planned[1:] == "full").any()
    assert (planned[1:] == "partial").any()
    assert ((planned == "full") <= (did == "full")).all()


@pytest.mark.parametrize("cache", full_policies())
def test_no_policy_plans_more_than_it_does(cache):
    planned, did = kinds("mha", cache=cache)
    assert ((planned == "full") <= (did == "full")).all()
    assert np.isin(did[np.isin(planned, ("reuse", "frozen"))], ("reuse", "frozen")).all()


@pytest.mark.parametrize("cache", ["dare_kv", "dare_o", "d2_cache", "dual+dare_o"])
def test_rows_chosen_by_data_are_planned_as_partial(cache):
    planned, did = kinds("mha", cache=cache)
    assert (planned[0] == "full").all()
    assert ((planned == "full") <= (did == "full")).all()
    rests = np.isin(planned, ("reuse", "frozen"))
    assert np.array_equal(planned[rests], did[rests])
    assert (planned == "partial").any()


def test_an_empty_rest_is_full():
    planned, did = kinds("mha", cache="dual", block_length=12)
    assert (planned[:, 2] == "full").all()
    assert np.array_equal(planned, did)


def test_a_trace_derives_what_was_done():
    spec = make_spec(cache="dual", **THREE_BLOCKS)
    model = model_of("shifted-mha")
    result = run(model, spec, recorder=StepRecorder())
    trace = trace_of([started(spec, logit_shift=1), *result.events, ended(result)])
    planned, _ = kinds("shifted-mha", cache="dual")
    assert np.array_equal(np.array(KINDS)[trace.recomputed_kinds()], planned)
    trace.meta["model"] |= {"logit_shift": 0}
    assert not np.array_equal(np.array(KINDS)[trace.recomputed_kinds()], planned)
    trace.meta["spec"] = {}
    with pytest.raises(ValueError, match=r"meta\.spec\.block_length"):
        trace.recomputed_kinds()


def facts(**changes):
    policy = micro_job(model_of("mha"), make_spec(**changes)).make_policy()
    state = run(model_of("mha"), make_spec(**changes), policy=lambda: policy).state
    return state.branches[0].policy.facts()


@pytest.mark.parametrize("cache", ["none", "dual", "freecache", "d2_cache", "dkv_cache"])
def test_most_policies_have_no_facts(cache):
    assert facts(cache=cache) == {}


def test_budgets_are_the_share_of_each_layer():
    assert facts(cache="dllm_cache") == {"budget": [1.0, 0.25, 0.25]}
    sparse = {"dllm_cache.layer0_dense": False, "dllm_cache.recompute_ratio": 0.5}
    assert facts(cache="dllm_cache", knobs=sparse) == {"budget": [0.5] * 3}
    curve = preset("micro").scaled(0.25).ratios(3)
    assert facts(cache="spa_cache") == {"budget": [1.0, *curve[1:]]}
    assert facts(cache="spa_cache", knobs={"spa_cache.kv_mode": "sparse"}) == {
        "budget": list(curve)
    }


@pytest.mark.parametrize("skipped", [0, 2])
@pytest.mark.parametrize("cache", ["dare_kv", "dare_o", "dual+dare_o"])
def test_the_facts_of_dare_are_thresholds_and_the_share_it_aims_to_reuse(cache, skipped):
    name = f"{cache.split('+')[-1]}.skip_first_layers"
    found = facts(cache=cache, knobs={name: skipped} if skipped else {})
    assert found["threshold"][:skipped] == [-1.0] * skipped
    assert found["reuse"][:skipped] == [0.0] * skipped
    profile = make_profile()
    for threshold, share in zip(
        found["threshold"][skipped:], found["reuse"][skipped:], strict=True
    ):
        assert share == pytest.approx(0.5)
        assert threshold == pytest.approx(profile.quantile(0, 0.5))
    assert all(math.isfinite(x) for numbers in found.values() for x in numbers)


def test_without_reuse_there_are_no_thresholds():
    assert facts(cache="dare_o", knobs={"dare_o.qbar": 0.0}) == {"threshold": [], "reuse": []}
