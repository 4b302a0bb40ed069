"""Schedules of the public samplers, beside plain loops on small models."""

import pytest
import torch

from tests.compat.schedules import rounded_counts
from tests.compat.test_dream import filtered, shifted
from tests.compat.test_samplers import (
    DREAM,
    LLADA,
    PROMPT,
    above,
    assert_same,
    decoded,
    started,
)
from tests.support.micro import model_of
from tests.support.plain_model import PlainModel, PlainRun, best, ranked


def carried_budget(length, steps, threshold, score=lambda z: best(z)[0]) -> PlainRun:
    """Fast-dLLM's uncached sampler for Dream with `length` / `steps` tokens a step."""
    model, run, carried, step = PlainModel(model_of(DREAM)), started(length), 0, 0
    share = length // steps
    while step < steps:
        z = shifted(model.whole(run.ids))
        scores = {p: score(z[p]) for p in run.masks(0, len(run.ids))}
        order = ranked(scores)[: share + carried]
        kept = [p for n, p in enumerate(order) if n == 0 or scores[p] >= threshold]
        carried = len(order) - len(kept)
        if step == steps - 1 and carried:
            share, steps = 0, steps + 1
        run.commit({p: best(z[p])[1] for p in kept})
        step += 1
    return run


@pytest.mark.parametrize(("steps", "threshold"), [(4, 0.5), (4, None), (12, 0.5), (2, 0.0)])
def test_dreams_threshold_has_a_budget_that_is_carried_over(steps, threshold):
    settings = {"gen_length": 12, "block_length": 12, "steps": steps, "alg": "confidence_threshold"}
    expected = carried_budget(12, steps, 0.9 if threshold is None else threshold)
    if threshold is not None:
        settings["threshold"] = threshold
    found = decoded("dream_vanilla", DREAM, settings)
    assert_same(found, expected)
    assert (found.state.step_index > steps) == (steps == 4)


def test_dreams_threshold_is_compared_with_the_filtered_distribution():
    def score(z):
        return best(filtered(z, top_k=2))[0]

    expected = carried_budget(12, 4, 0.5, score)
    assert expected.calls == 4 < carried_budget(12, 4, 0.5).calls
    settings = {"gen_length": 12, "block_length": 12, "steps": 4, "threshold": 0.5, "top_k": 2}
    found = decoded("dream_vanilla", DREAM, settings | {"alg": "confidence_threshold"})
    assert_same(found, expected)


def dllm_counts(masks, steps) -> list[int]:
    """dllm's counts with its linear schedule of float32 numbers."""
    counts = []
    for step in range(steps, 0, -1):
        s, t = torch.tensor((step - 1) / steps), torch.tensor(step / steps)
        share = 1 - ((1 - (1 - s)) / (1 - (1 - t))).item()
        counts.append(int(torch.round(torch.tensor(masks, dtype=torch.float64) * share)))
        masks -= counts[-1]
    return [count for count in counts if count]


def dllm(length, size, steps, choose) -> PlainRun:
    """dllm's sampler with a dual cache: a block has no more calls than counts, and may keep masks.

    The last block is shorter if `size` does not divide `length`.
    """
    model, run = PlainModel(model_of(LLADA)), started(length)
    every, cache = torch.arange(len(run.ids)), model.empty(len(run.ids))
    for start in range(len(PROMPT), len(run.ids), size):
        block = every[start : start + size]
        for call, count in enumerate(dllm_counts(len(block), steps)):
            if masks := run.masks(start, start + len(block)):
                first, rows = (0, every) if call == 0 else (start, block)
                z = model.forward(run.ids, rows, cache)
                scores = {p: best(z[p - first])[0] for p in masks}
                chosen = choose(ranked(scores), scores, count)
                run.commit({p: best(z[p - first])[1] for p in chosen})
    return run


def counted(order, scores, count):
    return order[:count]


@pytest.mark.parametrize("steps", range(1, 20))
def test_dllm_rounds_the_counts_of_a_block(steps):
    for masks in range(1, 40):
        assert rounded_counts(masks, steps) == dllm_counts(masks, steps)


@pytest.mark.parametrize("short", [0, 1])  # the steps of a block are rounded up
@pytest.mark.parametrize("steps", [3, 5, 12])
def test_dllm_without_a_factor_commits_rounded_counts(steps, short):
    settings = {"gen_length": 16, "block_length": 8, "steps": 2 * steps - short, "cache": "dual"}
    assert_same(decoded("dllm_fast", LLADA, settings), dllm(16, 8, steps, counted))
    assert len(dllm_counts(8, steps)) < 12


@pytest.mark.parametrize(("length", "steps"), [(5, 12), (20, 4)])  # one block, and three
def test_dllms_last_block_is_shorter_if_the_blocks_do_not_divide_the_answer(length, steps):
    settings = {"gen_length": length, "block_length": 8, "steps": 12, "cache": "dual"}
    assert_same(decoded("dllm_fast", LLADA, settings), dllm(length, 8, steps, counted))


@pytest.mark.parametrize("rule", ["factor", "threshold"])
@pytest.mark.parametrize("steps", [2, 8])
def test_dllms_dual_cache_caps_the_calls_of_a_block(rule, steps):
    def factor(order, scores, count):
        limits = [-1.0, *(1 - 0.2 / (n + 1) for n in range(2, len(order) + 1))]
        failed = [n for n, p in enumerate(order) if scores[p] < limits[n]]
        return order[: failed[0] if failed else len(order)]

    def threshold(order, scores, count):
        return above(0.99)(order, scores)

    chosen = {"factor": factor, "threshold": threshold}[rule]
    expected = dllm(16, 8, steps, chosen)
    settings = {"gen_length": 16, "block_length": 8, "steps": 2 * steps, "cache": "dual"}
    found = decoded("dllm_fast", LLADA, settings | {rule: {"factor": 0.2, "threshold": 0.99}[rule]})
    assert_same(found, expected)
    assert (expected.order.count(-1) > 0) == (steps == 2)
