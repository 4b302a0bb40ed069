"""dLLM-Cache: its intervals, what V-verify selects, and where it must equal no cache."""

import itertools
from dataclasses import replace

import pytest
import torch

from engine.cache.methods.dllm_cache import DllmCache
from engine.core.regions import is_refresh_step
from engine.core.rows import to_mask
from engine.models.ops import drift, top_drift
from engine.record.recorder import listen_to_plans
from tests.support.micro import (
    ATOL,
    MASK,
    make_prompts,
    make_spec,
    model_of,
    run,
    tapped,
    widest_gap,
)

PROMPT, ANSWER = 6, 16
WHOLE = make_spec(block_length=16)


def gap(model, spec, **knobs):
    """How far its logits are from no cache at the same canvases; inf once the canvases part."""
    policy = DllmCache(**knobs)
    return widest_gap(tapped(model, spec)[1], tapped(model, spec, policy=lambda: policy)[1])


def planned(model, spec, **knobs):
    """Events of a run and its layer plans, [steps][layers]."""
    plans = []
    ran = run(model, spec, policy=lambda: listen_to_plans(DllmCache(**knobs), plans), eager=True)
    layers = model.info.layers
    return ran, [plans[i : i + layers] for i in range(0, len(plans), layers)]


def rows_of(plan, site="ffn"):
    return set(to_mask(getattr(plan, site), 1, PROMPT + ANSWER)[0].nonzero()[:, 0].tolist())


@pytest.mark.parametrize("interval", [None, 3])
def test_all_of_the_answer_and_a_fresh_prompt_equal_no_cache(model, interval):
    knobs = {"response_interval": interval, "recompute_ratio": 1.0, "layer0_dense": False}
    assert gap(model, WHOLE, prompt_interval=1, **knobs) < ATOL
    assert gap(model, WHOLE, prompt_interval=None, **knobs) > 1e-3


@pytest.mark.parametrize("interval", [None, 5])
def test_one_layer_needs_no_fresh_prompt(family, interval):
    knobs = {"prompt_interval": interval, "recompute_ratio": 1.0, "layer0_dense": False}
    assert gap(model_of(family, 1), WHOLE, **knobs) < ATOL
    assert gap(model_of(family, 3), WHOLE, **knobs) > 1e-3


@pytest.mark.parametrize("family", ["mha", "gqa"])
def test_without_recomputation_nothing_changes(family):
    model = model_of(family)
    never = {"prompt_interval": None, "response_interval": None, "layer0_dense": False}

    def moved(ratio):
        policy = DllmCache(recompute_ratio=ratio, **never)
        steps = tapped(model, WHOLE, policy=lambda: policy)[1]
        worst = 0.0
        for (view, _, x, _), (after, _, y, _) in itertools.pairwise(steps):
            kept = torch.isin(view.needs[0], after.needs[0])
            worst = max(worst, (x[0, kept, :MASK] - y[0, :, :MASK]).abs().max().item())
        return worst

    assert moved(0.0) < ATOL
    assert moved(0.5) > 1e-3


@pytest.mark.parametrize("ratio", [0.25, 0.3])
def test_committed_tokens_are_recomputed_in_the_first_layer(model, ratio):
    never = {"prompt_interval": None, "response_interval": None, "layer0_dense": False}
    ran, steps = planned(model, WHOLE, recompute_ratio=ratio, **never)
    answer = set(range(PROMPT - model.info.logit_shift, PROMPT + ANSWER))
    for event, plans in zip(ran.events, steps[1:], strict=False):
        for plan in plans:
            assert len(rows_of(plan)) == int(ratio * len(answer))
            assert rows_of(plan, "k") == rows_of(plan)
            assert rows_of(plan, "v") == answer
        assert set(event.positions.tolist()) <= rows_of(plans[0])
    assert len({frozenset(rows_of(plans[0])) for plans in steps[1:]}) > 1


def test_the_clock_is_that_of_the_released_code():
    assert [s for s in range(256) if is_refresh_step(s, 7)] == list(range(0, 256, 7))
    assert [s for s in range(256) if is_refresh_step(s, 100)] == [0, 100, 200]
    assert [s for s in range(256) if is_refresh_step(s, None)] == [0]


def test_regions_are_refreshed_at_their_own_intervals(model):
    knobs = {"prompt_interval": 4, "response_interval": 3, "layer0_dense": False}
    _, steps = planned(model, WHOLE, **knobs)
    start = PROMPT - model.info.logit_shift
    prompt, answer = set(range(start)), set(range(start, PROMPT + ANSWER))
    for step, plans in enumerate(steps):
        rows = rows_of(plans[1])
        assert (prompt <= rows) == (step % 4 == 0)
        assert (answer <= rows) == (step % 3 == 0)
        assert not rows & prompt or prompt <= rows


def test_the_first_layer_is_dense_by_default(model):
    _, dense = planned(model, WHOLE)
    _, spare = planned(model, WHOLE, layer0_dense=False)
    assert all(len(rows_of(plans[0])) == PROMPT + ANSWER for plans in dense)
    assert len(rows_of(spare[1][0])) == ANSWER // 4


@pytest.mark.parametrize("dense", [True, False])
def test_a_step_that_recomputes_only_the_first_layer_is_partial(model, dense):
    events = planned(model, WHOLE, recompute_ratio=0.0, layer0_dense=dense)[0].events
    idle = "partial" if dense else "reuse"
    assert [event.kind for event in events[:6]] == ["full", *[idle] * 4, "partial"]


def test_in_the_published_second_case_the_answer_is_not_recomputed(model):
    knobs = {"prompt_interval": 2, "response_interval": None, "layer0_dense": False}
    _, paper = planned(model, WHOLE, case2="paper", **knobs)
    _, code = planned(model, WHOLE, case2="code", **knobs)
    start = PROMPT - model.info.logit_shift
    assert rows_of(paper[2][1]) == set(range(start))
    assert len(rows_of(code[2][1])) == start + ANSWER // 4


@pytest.mark.parametrize("selector", ["v_cos", "k_cos", "v_l2", "random"])
def test_every_selector_recomputes_its_share(model, selector):
    _, steps = planned(model, WHOLE, selector=selector, layer0_dense=False)
    assert {len(rows_of(plan)) for plan in steps[1]} == {ANSWER // 4}


def test_selectors_choose_differently(model):
    chosen = [
        [rows_of(plan) for plan in planned(model, WHOLE, selector=name)[1][1]]
        for name in ("v_cos", "random")
    ]
    assert chosen[0] != chosen[1]


def test_random_rows_follow_the_seed(model):
    def chosen(seed):
        spec = replace(WHOLE, seed=seed)
        return [rows_of(plan) for plan in planned(model, spec, selector="random")[1][1]]

    assert chosen(1) == chosen(1) != chosen(2)


def test_the_last_update_is_another_reference_than_the_last_step(model):
    never = {"prompt_interval": None, "response_interval": None}
    runs = [planned(model, WHOLE, ref=ref, **never)[1] for ref in ("last_step", "last_update")]
    rows = [[[rows_of(plan) for plan in plans] for plans in steps] for steps in runs]
    assert rows[0][1] == rows[1][1]
    assert rows[0] != rows[1]


def test_scale_does_not_matter_to_a_cosine():
    noise = torch.Generator().manual_seed(3)
    new, old = (torch.randn(2, 16, 8, dtype=torch.float64, generator=noise) for _ in range(2))
    chosen, _ = top_drift(drift(new, old), 4, 0)
    assert torch.equal(top_drift(drift(7 * new, 7 * old), 4, 0)[0], chosen)
    assert not torch.equal(top_drift((new - old).norm(dim=-1), 4, 0)[0], chosen)


def test_rows_of_a_batch_are_chosen_by_sequence(model):
    plans = []
    policy = listen_to_plans(DllmCache(layer0_dense=False), plans)
    run(model, WHOLE, make_prompts(6, 6), policy=lambda: policy, eager=True)
    index = plans[model.info.layers].ffn
    assert index.shape == (2, ANSWER // 4)
    assert not torch.equal(index[0], index[1])
