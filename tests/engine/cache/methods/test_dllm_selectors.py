"""dLLM-Cache's selectors: what each computes, stores and compares."""

from functools import cache
from types import SimpleNamespace

import pytest
import torch

from engine.cache.base import RunInfo
from engine.cache.layer_probe import LayerProbe
from engine.cache.methods.dllm_cache import DllmCache
from engine.cache.selection import share
from engine.cache.store import ActivationStore
from engine.core.events import PARTS, SITES
from engine.core.rows import ALL, to_mask
from engine.generate.loop import Denoiser, denoise
from engine.models.ops import drift
from engine.record.recorder import listen_to_plans
from tests.support.micro import (
    ATOL,
    make_spec,
    micro_job,
    model_of,
    tapped,
    widest_gap,
)
from tests.support.torch_flops import counted

REFERENCES = ("last_step", "last_update")
COMPARED = {"v_cos": "v", "k_cos": "k", "v_l2": "v", "random": ""}
PROMPT, ANSWER = 6, 16
WHOLE = make_spec(block_length=16)
NEVER = {"prompt_interval": None, "response_interval": None, "layer0_dense": False}
EVERY_OTHER_PROMPT = NEVER | {"prompt_interval": 2}


class AlsoV(DllmCache):
    """Computes V of the compared rows in addition, whatever the selector."""

    def plan(self, layer, probe):
        plan = super().plan(layer, probe)
        if isinstance(plan.ffn, torch.Tensor):
            probe.project("v", self._compared_rows)
        return plan


def alternating(selector, ref):
    """A model of another family for the next selector, and for the next reference."""
    place = list(COMPARED).index(selector) + REFERENCES.index(ref)
    return model_of(("mha", "shifted-gqa")[place % 2])


def spent(model, policy):
    """FLOPs of the layers in each of four steps, by torch; the engine must count the same."""
    steps = denoise(Denoiser(micro_job(model, WHOLE, policy=lambda: policy, eager=True)))
    head = PARTS.index("head")
    return [flops - int(event.flops[head]) for event, flops in counted(steps, 4)]


def by_hand(model, selector, prompt):
    """FLOPs of the layers of a step that selects a quarter of the answer."""
    info, shift = model.info, model.info.logit_shift
    few, also = share(0.25, ANSWER + shift), (PROMPT - shift) * prompt
    rows = {name: also + (ANSWER + shift if COMPARED[selector] == name else few) for name in "kv"}
    d, kv = info.d_model, rows["k"] + rows["v"]
    projected = 2 * 2 * (also + few) * d * d + 2 * kv * d * info.d_kv
    attended = 4 * (also + few) * (PROMPT + ANSWER) * d
    return info.layers * (projected + attended + 6 * (also + few) * d * info.ffn)


@pytest.mark.parametrize("ref", REFERENCES)
@pytest.mark.parametrize("selector", COMPARED)
def test_a_step_costs_the_rows_that_its_selector_needs(selector, ref):
    model, knobs = alternating(selector, ref), {"selector": selector, "ref": ref}
    answer_only, with_prompt = (by_hand(model, selector, prompt) for prompt in (False, True))
    assert spent(model, DllmCache(**knobs, **NEVER))[1:] == [answer_only] * 3
    found = spent(model, DllmCache(**knobs, **EVERY_OTHER_PROMPT))
    assert found[1:] == [answer_only, with_prompt, answer_only]


@pytest.mark.parametrize("family", ["mha", "shifted-gqa"])
def test_selectors_that_compare_cost_the_same_and_random_less(family):
    model, costs = model_of(family), {}
    for name in COMPARED:
        costs[name] = spent(model, DllmCache(selector=name, **NEVER))
    assert costs["v_cos"] == costs["k_cos"] == costs["v_l2"]
    info, answer = model.info, ANSWER + model.info.logit_shift
    whole = 2 * info.layers * info.d_model * info.d_kv
    saved = whole * (answer - share(0.25, answer))
    assert [a - b for a, b in zip(costs["k_cos"], costs["random"], strict=True)] == [
        0,
        *[saved] * 3,
    ]
    wasteful = spent(model, AlsoV(selector="k_cos", **NEVER))
    assert [a - b for a, b in zip(wasteful, costs["k_cos"], strict=True)] == [
        0, *[whole * answer] * 3
    ]  # fmt: skip


@cache
def spent_without_selection(model):
    """FLOPs of each step where no row is ever selected, counted once; do not change them."""
    return spent(model, DllmCache(3, 2, 0.0, layer0_dense=True))


@pytest.mark.parametrize("ref", REFERENCES)
@pytest.mark.parametrize("selector", COMPARED)
def test_a_reference_costs_nothing_at_a_refresh(selector, ref):
    model = alternating(selector, ref)
    found = spent(model, DllmCache(3, 2, 0.0, selector=selector, ref=ref))
    assert found == spent_without_selection(model)


def stored(model, **knobs):
    """For each step that selects rows: its layer plans, the store before it and after it."""
    plans, policy = [], DllmCache(**knobs)
    job = micro_job(model, WHOLE, policy=lambda: listen_to_plans(policy, plans), eager=True)
    state, before = Denoiser(job), {}
    for _ in denoise(state):
        data = {key: t.clone() for key, t in state.branches[0].store._data.items()}
        if before:
            yield list(plans), before, data
        plans.clear()
        before = data


@pytest.mark.parametrize("knobs", [NEVER, EVERY_OTHER_PROMPT])
@pytest.mark.parametrize("selector", COMPARED)
def test_what_is_not_computed_keeps_its_stored_value(model, selector, knobs):
    first, changed = PROMPT - model.info.logit_shift, dict.fromkeys(("k", "v", "branch"), 0)
    for step, (plans, before, after) in enumerate(stored(model, selector=selector, **knobs), 1):
        prompt = knobs is EVERY_OTHER_PROMPT and step % 2 == 0
        for layer, plan in enumerate(plans):
            chosen = to_mask(plan.ffn, 1, PROMPT + ANSWER)[0]
            assert chosen[:first].all() == chosen[:first].any() == prompt
            assert int(chosen[first:].sum()) == share(0.25, ANSWER + model.info.logit_shift)
            for site in SITES:
                rows = to_mask(getattr(plan, site), 1, PROMPT + ANSWER)[0]
                whole = chosen.clone()
                whole[first:] |= site == COMPARED[selector]
                assert torch.equal(rows, whole)
                place = site if site in ("k", "v") else "branch"
                old, new = (data[layer, place][0] for data in (before, after))
                if place != "branch":
                    old, new = old.transpose(0, 1), new.transpose(0, 1)
                assert torch.equal(old[~rows], new[~rows])
                changed[place] += int((old != new).flatten(1).any(1).sum())
    assert min(changed.values()) > 0


def selections(model, inputs, **knobs):
    """The rows that one layer selects for inputs [1, T, D] of the steps 1, 2, ..., prompts of 4."""
    policy, length = DllmCache(recompute_ratio=0.13, **NEVER, **knobs), inputs[0].shape[1]
    run = RunInfo(model.info, 1, 4, length - 4, 4)
    policy.start(run)
    store = ActivationStore(
        model.info, policy.sites(run), 1, length, model.dtype, torch.device("cpu")
    )
    for step, h in enumerate(inputs):
        policy.begin_step(SimpleNamespace(step=step))
        probe = LayerProbe(model, store, 1, h, ALL, length)
        plan = policy.plan(1, probe)
        probe.attn(plan)
        if step:
            yield plan.attn[0].tolist()


def restless(model, steps):
    """Inputs of which one row turns slowly, always the same way, and one back and forth, faster."""
    noise = torch.Generator().manual_seed(3)
    a, b = torch.randn(2, 1, 12, model.info.d_model, generator=noise, dtype=torch.float64)
    angles = torch.zeros(steps, 12, dtype=torch.float64)
    angles[:, 6] = 0.05 * torch.arange(steps)
    angles[1::2, 9] = 0.3
    return [a * t.cos()[:, None] + b * t.sin()[:, None] for t in angles]


def compared_by_hand(model, inputs, selector, ref):
    """The selections, from each row's K or V at the step, or the choice, that `ref` names."""
    first, length = 4 - model.info.logit_shift, inputs[0].shape[1]
    old = None
    for h in inputs:
        x, rows = model.attn_norm(1, h[:, first:]), slice(first, length)
        new = model.project(1, COMPARED[selector], x, rows, length)[0].flatten(2)
        if old is not None:
            apart = (new - old).norm(dim=-1) if selector == "v_l2" else drift(new, old)
            row = int(apart[0].argmax())
            yield [row + first]
        if old is None or ref == "last_step":
            old = new
        else:
            old[0, row] = new[0, row]


@pytest.mark.parametrize("selector", ["v_cos", "k_cos", "v_l2"])
def test_rows_are_compared_with_the_reference_that_is_set(model, selector):
    inputs, found = restless(model, 20), {}
    for ref in REFERENCES:
        found[ref] = list(selections(model, inputs, selector=selector, ref=ref))
        assert found[ref] == list(compared_by_hand(model, inputs, selector, ref))
    assert [6] not in found["last_step"]
    assert [6] in found["last_update"]


def test_a_random_choice_has_no_reference(model):
    run = RunInfo(model.info, 1, 4, 8, 4)
    kept = {name: DllmCache(selector=name, ref="last_update").sites(run) for name in COMPARED}
    assert [len(kept[name]) for name in COMPARED] == [4, 4, 4, 3]


@pytest.mark.parametrize("ref", REFERENCES)
@pytest.mark.parametrize("selector", ["k_cos", "random"])
def test_choosing_the_whole_answer_equals_no_cache(model, selector, ref):
    spec = make_spec(gen_length=8, block_length=8, steps=8)
    expected = tapped(model, spec)[1]

    def gap(prompt_interval, ratio):
        knobs = {"selector": selector, "ref": ref, "recompute_ratio": ratio}
        knobs = NEVER | knobs | {"prompt_interval": prompt_interval}
        return widest_gap(expected, tapped(model, spec, policy=lambda: DllmCache(**knobs))[1])

    assert gap(1, 1.0) < ATOL
    assert gap(1, 0.5) > 1e-6
    assert gap(None, 1.0) > 1e-6
