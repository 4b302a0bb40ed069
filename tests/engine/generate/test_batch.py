"""Batches: each sequence decodes as it does alone."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from engine.cache.base import LayerPlan
from engine.generate.loop import Denoiser, denoise
from tests.support.micro import (  # fmt: skip
    ATOL,
    TWO_BLOCKS,
    LogitTap,
    Planned,
    Run,
    full_policies,
    make_model,
    make_prompts,
    make_spec,
    micro_job,
    model_of,
    random_rows,
    run,
)

PROMPTS = make_prompts(6, 2, 9)
CASES = [
    ("mha", {"cache": "none", "unmasker": "threshold", "temperature": 0.7}),
    ("gqa", {"cache": "prefix", "unmasker": "threshold"}),
    ("shifted-mha", {"cache": "dual", "unmasker": "threshold"}),
    ("shifted-gqa", {"cache": "dual", "unmasker": "factor", "temperature": 1.0}),
    ("mha", {"cache": "dual", "unmasker": "quota", "steps": 8, "knobs": {"quota.score": "random"}}),
    ("gqa", {"cache": "dual", "unmasker": "frechet", "cfg_scale": 1.0}),
    ("shifted-mha", {"cache": "prefix", "unmasker": "quota", "cfg_scale": 0.5}),
    ("shifted-gqa", {"cache": "none", "unmasker": "quota", "fixed": ((2, 8), (5, 9))}),
    ("mha", {"cache": "dual", "unmasker": "threshold", "eos": "fill_eager", "seed": 3}),
    ("gqa", {"cache": "none", "unmasker": "quota", "eos": "fill_safe", "seed": 2}),
]


def with_low_threshold(changes):
    if changes["unmasker"] != "threshold":
        return changes
    return changes | {"knobs": {"threshold.threshold": 0.25}}


def alone(model, changes, row):
    spec = make_spec(**changes)
    return run(model, make_spec(**changes | {"seed": spec.seed + row}), [PROMPTS[row]])


@pytest.mark.parametrize(("family", "changes"), CASES)
def test_a_batch_with_unequal_prompts_equals_its_single_runs(family, changes):
    model, changes = model_of(family), with_low_threshold(changes)
    batch = run(model, make_spec(**changes), PROMPTS)
    for row in range(3):
        single = alone(model, changes, row)
        assert np.array_equal(batch.ids[row, 9:], single.ids[0, len(PROMPTS[row]) :])
        together = {place: what for (s, place), what in batch.reveals.items() if s == row}
        assert together == {place: what for (_, place), what in single.reveals.items()}


@pytest.mark.parametrize("cache", ["frozen", "sub_block"])
def test_a_finished_sequence_needs_no_row_that_a_step_before_the_block_lacks(cache):
    """With shifted logits the first token of a block is predicted by the block before."""
    model = make_model(
        13, 1, 4, 3, attention="block_causal", block_size=4, block_sizes=(4,), stop_ids=(1, 2)
    )
    spec = make_spec(
        gen_length=16, block_length=4, steps=16, unmasker="fast_dllm_v2", cache=cache, seed=25,
        knobs={"fast_dllm_v2.threshold": 0.2},
    )  # fmt: skip
    for seed in (2, 7, 9):
        prompts = make_prompts(4, 8, seed=seed)
        batch = run(model, spec, prompts)
        for row, prompt in enumerate(prompts):
            single = run(model, replace(spec, seed=spec.seed + row), [prompt])
            assert np.array_equal(batch.ids[row, 8:], single.ids[0, len(prompt) :])


@pytest.mark.parametrize("cache", full_policies())
@pytest.mark.parametrize("family", ["mha", "shifted-gqa"])
def test_under_every_policy_sequences_do_not_affect_each_other(family, cache):
    model, changes = model_of(family), {"cache": cache, "unmasker": "quota", **TWO_BLOCKS}
    batch = run(model, make_spec(**changes), PROMPTS)
    for row in range(3):
        single = alone(model, changes, row)
        assert np.array_equal(batch.ids[row, 9:], single.ids[0, len(PROMPTS[row]) :])


def logits_by_reveal(model, changes, prompts, policy=None):
    """(sequence, block, block step, offset) -> logits of each position that may be committed."""
    tap, seen = LogitTap(), {}
    result = run(model, make_spec(**changes), prompts, tap, policy)
    start = result.state.run.prompt_length
    for event, (view, _, logits, _) in zip(result.events, tap.steps, strict=True):
        for s, n in view.real.nonzero().tolist():
            place = int(view.needs[s, n]) - start
            seen[s, event.block, event.block_step, place] = logits[s, n, :-1]
    return seen


def logits_as_alone(model, changes):
    """The logits of a batch of PROMPTS, which must be those of each prompt alone."""
    together = logits_by_reveal(model, changes, PROMPTS)
    for row, prompt in enumerate(PROMPTS):
        single = logits_by_reveal(model, changes | {"seed": row}, [prompt])
        assert {key[1:] for key in together if key[0] == row} == {key[1:] for key in single}
        for (_, *key), logits in single.items():
            torch.testing.assert_close(together[(row, *key)], logits, atol=ATOL, rtol=0)
    return together


@pytest.mark.parametrize("cache", ["none", "prefix", "dual"])
@pytest.mark.parametrize("family", ["gqa", "shifted-mha"])
def test_logits_of_a_batch_equal_those_of_single_runs(family, cache):
    changes = {"cache": cache, "unmasker": "threshold", "knobs": {"threshold.threshold": 0.25}}
    assert logits_as_alone(model_of(family), changes)


def test_sequences_end_their_blocks_at_different_steps():
    knobs = {"threshold.threshold": 0.25}
    batch = run(model_of("gqa"), make_spec(unmasker="threshold", knobs=knobs), PROMPTS)
    last = {}
    for (sequence, _), (block, step, _) in batch.reveals.items():
        last[sequence, block] = max(step, last.get((sequence, block), 0))
    assert any(len({last[s, block] for s in range(3)}) > 1 for block in range(4))


def test_without_a_padding_mask_the_logits_differ():
    model, spec = model_of("mha"), make_spec()
    job = micro_job(model, spec, PROMPTS, LogitTap())
    job.pad_mask = None
    wrong = Run(Denoiser(job), [])
    wrong.events = list(denoise(wrong.state))
    right = LogitTap()
    run(model, spec, PROMPTS, right)
    gap = (job.recorder.steps[0][2] - right.steps[0][2])[1, :, :-1].abs().max()
    assert gap > 1e-3


def per_sequence_plan(batch):
    """Recompute a different random half of each sequence's rows in each layer."""

    def rows_of(layer, probe):
        rows = random_rows(100 + layer, batch, torch.arange(probe.length), probe.length // 2)
        return LayerPlan(k=rows, v=rows, attn=rows, ffn=rows)

    return rows_of


def test_index_rows_of_one_sequence_do_not_affect_another(model):
    """Of two equal sequences with different rows, the first decodes as it does alone."""
    prompts = [make_prompts(6)[0]] * 2
    first = run(model, make_spec(), prompts[:1], policy=lambda: Planned(None, per_sequence_plan(1)))
    both = run(model, make_spec(), prompts, policy=lambda: Planned(None, per_sequence_plan(2)))
    assert np.array_equal(first.ids[0], both.ids[0])
    exact = run(model, make_spec(), prompts[:1])
    assert not np.array_equal(first.ids[0], exact.ids[0])
