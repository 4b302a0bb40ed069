"""Dream-Coder's padding penalty: its value in each step, and what it does to a run."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from engine.catalog import make_unmasker
from engine.generate.what_if import what_if
from engine.unmask.schedule import BlockProgress
from tests.support.branching import make, record
from tests.support.micro import (
    EOS,
    MASK,
    block_model_of,
    make_model,
    make_prompts,
    make_spec,
    model_of,
    run,
    tapped,
)
from tests.support.reference import reference_logits

PAD = 7


def spec(penalty=0.0, **changes):
    knobs = {"dream.padding_penalty": penalty} | changes.pop("knobs", {})
    return make_spec(unmasker="dream", knobs=knobs, **{"block_length": 16, "steps": 16} | changes)


def offsets(wanted, model):
    """The offset of each step of a run."""
    found, rule = [], make_unmasker(wanted)
    _, steps = tapped(model, wanted)
    rule.start(None, wanted.steps // wanted.blocks)
    for view, *_ in steps:
        (pair,) = rule.logit_offsets(view).items()
        found.append(pair)
    return found


@pytest.mark.parametrize("eps", [0.001, 0.1])
@pytest.mark.parametrize("block", [16, 4])
def test_the_offset_follows_the_time_of_the_whole_answer(eps, block):
    model = make_model(5, 1, fill_id=PAD, stop_ids=(EOS, PAD))
    wanted = spec(3.0, knobs={"dream.eps": eps}, block_length=block)
    times = torch.linspace(1, eps, 17, dtype=torch.float64)[:16]
    expected = (3 * (1 - times + eps).log()).tolist()
    found = offsets(wanted, model)
    assert {token for token, _ in found} == {PAD}
    np.testing.assert_allclose([value for _, value in found], expected, rtol=1e-9)
    assert expected[0] == pytest.approx(3 * math.log(eps))
    assert 0 > expected[-1] > -0.3


def test_the_published_example_starts_at_minus_6_9_penalties():
    assert offsets(spec(1.0), model_of("shifted-mha"))[0][1] == pytest.approx(-6.9078, abs=1e-3)


def test_no_penalty_changes_nothing():
    model = model_of("shifted-gqa")
    assert make_unmasker(spec()).logit_offsets(None) == {}
    plain, none = run(model, make_spec(unmasker="dream", block_length=16)), run(model, spec())
    assert np.array_equal(plain.ids, none.ids)


def penalised_run(model, prompt, penalty, where=slice(None), steps=16):
    """Ids [T] of Dream's loop with one token a step, written from the formula alone.

    The penalty is added to the rows `where` of the answer; the published code adds it to all.
    """
    times = torch.linspace(1, 0.001, steps + 1, dtype=torch.float64)
    canvas = torch.tensor([prompt + [MASK] * 16])
    for i in range(steps):
        masked = canvas[0, len(prompt) :] == MASK
        z = reference_logits(model, canvas)[:, len(prompt) - 1 : -1].clone()
        z[:, where, EOS] += penalty * torch.log(1 - times[i] + 0.001)
        z[..., MASK] = -torch.inf
        p = z.softmax(-1)
        score = torch.special.xlogy(p, p).sum(-1)[0].masked_fill(~masked, -torch.inf)
        best = int(score.argmax())
        canvas[0, len(prompt) + best] = z[0, best].argmax()
    return canvas[0].numpy()


@pytest.mark.parametrize("seed", [0, 2])
def test_a_run_equals_the_published_loop(seed):
    """The penalty changes the ranking of positions too, so it matters where it is added."""
    model, (prompt,) = make_model(seed, 1), make_prompts(6, seed=seed)
    with torch.no_grad():  # a model that pads at once
        model.head.weight[EOS] = model.head.weight[10:20].mean(0) * 3
    ids = run(model, spec(3.0), [prompt]).ids[0]
    assert np.array_equal(ids, penalised_run(model, prompt, 3.0))
    plain = run(model, spec(), [prompt]).ids[0]
    assert np.array_equal(plain, penalised_run(model, prompt, 0.0))
    assert not np.array_equal(ids, plain)


def test_a_penalty_on_the_committed_rows_alone_gives_another_run():
    model, (prompt,) = make_model(0, 1), make_prompts(6, seed=0)
    with torch.no_grad():
        model.head.weight[EOS] = model.head.weight[10:20].mean(0) * 3
    whole = penalised_run(model, prompt, 3.0)
    assert not np.array_equal(whole, penalised_run(model, prompt, 3.0, slice(0, 8)))


def test_a_branch_goes_on_with_the_time_of_its_parent():
    rule = make_unmasker(spec(1.0))
    rule.start(None, 16, {6: BlockProgress(16, 8)})
    view = SimpleNamespace(
        block=slice(6, 22), block_index=0, block_step=0,
        run=SimpleNamespace(grid=[slice(6, 22)], info=SimpleNamespace(fill_id=PAD)),
    )  # fmt: skip
    assert rule.logit_offsets(view)[PAD] == pytest.approx(math.log(0.999 * 0.5 + 0.001))


def test_a_what_if_with_another_penalty_is_refused_and_with_the_same_is_exact():
    trace = record(make(unmasker="dream", knobs={"dream.padding_penalty": 3.0}, record="steps"))
    found = what_if(trace, 1, {"dream.alg": "maskgit_plus"})
    assert not found["refusal"]
    refused = what_if(trace, 1, {"dream.padding_penalty": "0.0"})
    assert refused["refusal"].startswith("padding_penalty: the recorded probabilities")
    assert what_if(trace, 1, {"unmasker": "threshold"})["refusal"] == refused["refusal"]
    plain = record(make(unmasker="dream", record="steps"))
    assert not what_if(plain, 1, {"unmasker": "threshold"})["refusal"]


def test_negative_and_huge_penalties_are_refused_by_name():
    for value in (-1.0, 11.0):
        with pytest.raises(ValueError, match=r"dream\.padding_penalty: .* is outside 0\.0 to 10"):
            make_unmasker(spec(value))


def test_the_offset_is_a_penalty_to_the_end_where_the_first_block_is_shared_with_the_prompt():
    model = block_model_of("mha")
    wanted = spec(3.0, gen_length=8, block_length=4, steps=8)
    _, steps = tapped(model, wanted, make_prompts(6))
    rule = make_unmasker(wanted)
    rule.start(None, wanted.steps // wanted.blocks)
    found = [value for view, *_ in steps for value in rule.logit_offsets(view).values()]
    assert max(found) < 0
    assert found == sorted(found)
