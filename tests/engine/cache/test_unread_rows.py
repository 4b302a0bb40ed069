"""Unread rows are not computed, and the rows that are read do not change."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from engine.cache.methods.dllm_cache import DllmCache
from engine.cache.methods.none import NoCache
from engine.catalog import policies
from engine.generate.loop import Denoiser, denoise
from engine.record.recorder import Recorder
from tests.support.micro import (
    ATOL,
    TWO_BLOCKS,
    fitting_model,
    full_policies,
    make_profile,
    make_prompts,
    make_spec,
    micro_job,
    model_of,
    run,
)

FAMILIES = ("mha", "shifted-gqa")
PROMPTS = make_prompts(11, 14)


class Whole(Recorder):
    """Wants every planned row."""

    unread = "full"


class Listener(Recorder):
    """Keeps the logits of each step."""

    def __init__(self):
        self.logits = []

    def record(self, view, plan, logits, candidates):
        self.logits.append(logits)


class WholeListener(Whole, Listener):
    pass


def prepared(name):
    def make():
        policy = policies()[name]()
        if name.startswith("dare"):
            policy.set_profile(make_profile())
        if name == "spa_cache":
            policy.identifier = "key"
        return policy

    return make


def flops(model, policy, recorder, prompts=PROMPTS):
    state = Denoiser(micro_job(model, make_spec(), prompts, recorder, policy))
    return np.array([event.flops.sum() for event in denoise(state)])


@pytest.mark.parametrize("name", sorted(policies()))
@pytest.mark.parametrize("family", FAMILIES)
def test_logits_equal_those_of_the_whole_plan(family, name):
    model, listener, whole = fitting_model(family, name), Listener(), WholeListener()
    # The blocks of a batch must lie at the same positions.
    prompts = PROMPTS if name in full_policies() else make_prompts(9, 13)
    spec = make_spec(**TWO_BLOCKS)
    lean = run(model, spec, prompts, listener, prepared(name))
    full = run(model, spec, prompts, whole, prepared(name))
    assert lean.ids.tolist() == full.ids.tolist()
    for a, b in zip(listener.logits, whole.logits, strict=True):
        torch.testing.assert_close(a, b, atol=ATOL, rtol=0)


@pytest.mark.parametrize("name", ["none", "prefix", "dual", "dkv_cache", "d2_cache", "dllm_cache"])
def test_unread_rows_cost_no_flops(name):
    model = model_of("mha")
    lean = flops(model, prepared(name), Recorder())
    whole = flops(model, prepared(name), Whole())
    assert lean.sum() < 0.97 * whole.sum()


def test_plain_decoding_counts_unread_rows_as_recomputed():
    state = Denoiser(micro_job(model_of("mha"), make_spec(), PROMPTS, None, NoCache))
    assert {event.recomputed for event in denoise(state)} == {1.0}


def test_dropping_rows_that_are_read_changes_the_result():
    class Hasty(DllmCache):
        def begin_step(self, view):
            plan = super().begin_step(view)
            late = slice(view.block.start, view.run.length)
            return plan if plan.output_rows is None else replace(plan, output_rows=late)

    with pytest.raises(RuntimeError, match="exceeds dimension size"):
        run(model_of("mha"), make_spec(gen_length=16, steps=16), PROMPTS, None, Hasty)
