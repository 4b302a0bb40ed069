"""Every position is committed once, in its block, and no other changes."""

from functools import cache

import numpy as np
import pytest
import torch

from engine.catalog import unmaskers
from engine.config.plan import quota
from tests.support.micro import MASK, make_model, make_prompts, make_spec, model_of, run
from tests.support.reference import reference_logits

SETTINGS = [
    ("mha", {"cache": "none", "unmasker": "quota"}),
    ("gqa", {"cache": "prefix", "unmasker": "threshold", "temperature": 0.8}),
    ("shifted-mha", {"cache": "dual", "unmasker": "factor"}),
    ("shifted-gqa", {"cache": "prefix", "unmasker": "frechet", "cfg_scale": 1.5}),
    ("mha", {"cache": "dual", "unmasker": "quota", "steps": 8, "knobs": {"quota.score": "random"}}),
    ("gqa", {"cache": "none", "unmasker": "threshold", "knobs": {"threshold.threshold": 0.2}}),
    ("shifted-mha", {"cache": "dual", "knobs": {"dual.refresh_interval": 2}, "steps": 8}),
    ("shifted-gqa", {"cache": "none", "unmasker": "quota", "knobs": {"quota.score": "entropy"}}),
]
every_setting = pytest.mark.parametrize("case", range(len(SETTINGS)))


@cache
def ran(case):
    """The run of a case, made once; tests must not change it."""
    family, changes = SETTINGS[case]
    return run(model_of(family), make_spec(**changes))


@every_setting
def test_every_position_is_revealed_exactly_once(case):
    result = ran(case)
    positions = np.concatenate([e.positions for e in result.events])
    assert sorted(positions) == list(range(6, 22))
    assert result.events[-1].masks_left == 0
    assert not result.state.masked.any()


@every_setting
def test_the_events_reconstruct_the_final_canvas(case):
    result = ran(case)
    canvas = np.array([*make_prompts(6)[0], *[MASK] * 16])
    left = 16
    for event in result.events:
        canvas[event.positions] = event.ids
        left -= len(event.positions)
        assert event.masks_left == left
    assert np.array_equal(canvas, result.ids[0])
    assert np.array_equal(result.state.canvas[0].numpy(), result.ids[0])


@every_setting
def test_the_prompt_is_unchanged_and_no_mask_is_left(case):
    result = ran(case)
    assert result.ids[0, :6].tolist() == make_prompts(6)[0]
    assert MASK not in result.ids[0, 6:]


@every_setting
def test_reveals_stay_in_the_current_block(case):
    for event in ran(case).events:
        assert ((event.positions - 6) // 4 == event.block).all()


def test_within_one_block_positions_are_committed_in_any_order():
    spec = make_spec(block_length=16)
    order = np.concatenate([e.positions for e in run(model_of("mha"), spec).events])
    assert (np.diff((order - 6) // 4) < 0).any()


@pytest.mark.parametrize("shift", [0, 1])
def test_the_mask_id_is_never_committed_even_if_it_is_the_argmax(shift):
    model = make_model(3, shift)
    first = run(model, make_spec()).ids[0, 6]
    model.head.weight[MASK] = 3 * model.head.weight[first]
    spec = make_spec(unmasker="threshold")
    result = run(model, spec)
    masks = torch.tensor([[*make_prompts(6)[0], *[MASK] * 16]])
    assert (reference_logits(model, masks)[0, 6 - shift :].argmax(-1) == MASK).any()
    assert MASK not in result.ids[0, 6:]


@pytest.mark.parametrize("temperature", [0.0, 0.7])
@pytest.mark.parametrize(
    "rule", [*({"unmasker": name} for name in unmaskers()), {"knobs": {"quota.score": "random"}}]
)
def test_logits_that_are_no_numbers_end_the_run(rule, temperature):
    model = make_model(3)
    model.embedding.weight[5] = torch.nan
    spec = make_spec(temperature=temperature, **rule)
    with pytest.raises(RuntimeError, match="finite numbers"):
        run(model, spec, [[5, 6, 7]])


def test_a_mask_id_in_the_prompt_is_text():
    prompt = [[5, MASK, 7, 8, MASK, 9]]
    result = run(model_of("mha"), make_spec(cache="dual"), prompt)
    assert result.ids[0, :6].tolist() == prompt[0]
    assert sorted(offset for _, offset in result.reveals) == list(range(16))


def test_fixed_tokens_stay_and_influence_the_rest():
    spec = make_spec(fixed=((1, 9), (6, 10), (15, 11)))
    result, free = run(model_of("gqa"), spec), run(model_of("gqa"), make_spec())
    assert result.ids[0, [7, 12, 21]].tolist() == [9, 10, 11]
    assert sorted(offset for _, offset in result.reveals) == sorted({*range(16)} - {1, 6, 15})
    others = [i for i in range(6, 22) if i not in (7, 12, 21)]
    assert not np.array_equal(result.ids[0, others], free.ids[0, others])


def test_a_block_that_is_fixed_entirely_costs_no_forward():
    fixed = tuple((offset, 9) for offset in range(4, 8))
    result = run(model_of("mha"), make_spec(cache="dual", fixed=fixed))
    assert [e.block for e in result.events] == [0] * 4 + [2] * 4 + [3] * 4


@pytest.mark.parametrize("steps", [4, 8, 12, 16])
def test_quota_commits_the_tokens_of_its_schedule(steps):
    result = run(model_of("mha"), make_spec(steps=steps))
    owed = quota(4, steps // 4) * 4
    assert [len(e.positions) for e in result.events] == list(owed)


def test_quota_runs_no_forward_for_steps_without_tokens():
    result = run(model_of("mha"), make_spec(steps=32))
    assert len(result.events) == 16


def test_quota_counts_only_the_masks_of_a_block():
    spec = make_spec(steps=8, fixed=((0, 9), (1, 9), (2, 9)))
    counts = [len(e.positions) for e in run(model_of("mha"), spec).events]
    assert counts == [1, 2, 2, 2, 2, 2, 2]


@pytest.mark.parametrize("masked", range(1, 40))
def test_quotas_sum_to_the_masks_and_decrease_by_at_most_one(masked):
    for steps in (1, 2, 3, 7, 32):
        owed = quota(masked, steps)
        assert sum(owed) == masked
        assert max(owed) - min(owed) <= 1
        assert list(owed) == sorted(owed, reverse=True)
