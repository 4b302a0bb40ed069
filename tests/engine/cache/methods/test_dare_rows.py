"""DARE: how the rows of a layer are chosen, in batches and at what cost."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from engine.cache.base import RunInfo
from engine.cache.layer_probe import LayerProbe
from engine.cache.methods.dare import DareKv, DareO
from engine.cache.methods.fast_dllm import DualCache
from engine.cache.methods.none import NoCache
from engine.cache.selection import marked_rows
from engine.cache.stack import Stack
from engine.cache.store import ActivationStore
from engine.core.rows import ALL
from engine.generate.loop import Denoiser, denoise
from engine.models.flops import FlopCounter
from engine.models.ops import drift
from engine.record.recorder import Recorder
from tests.engine.cache.methods.test_dare import FORMS, dare, noted, recomputed
from tests.support.micro import (
    ATOL,
    TWO_BLOCKS,
    make_prompts,
    make_spec,
    micro_job,
    model_of,
    run,
    tapped,
)
from tests.support.torch_flops import counted


def decide(model, policy, inputs, layer=1):
    """Plans of one layer for a series of inputs [1, T, D], the policy's own steps 0, 1, 2, ..."""
    info, length = RunInfo(model.info, 1, 4, 4, 4), inputs[0].shape[1]
    policy.start(info)
    store = ActivationStore(
        model.info, policy.sites(info), 1, length, model.dtype, torch.device("cpu")
    )
    for step, h in enumerate(inputs):
        policy.begin_step(SimpleNamespace(step=step, window_refreshed=False))
        yield policy.plan(layer, LayerProbe(model, store, layer, h, ALL, length))


def creeping(model, steps):
    """Inputs that turn a little from step to step, all the same way."""
    g = torch.Generator().manual_seed(3)
    a, b = torch.randn(2, 1, 8, model.info.d_model, generator=g, dtype=torch.float64)
    return [a * np.cos(0.1 * t) + b * np.sin(0.1 * t) for t in range(steps)]


@pytest.mark.parametrize("form", FORMS)
def test_slow_drift_is_detected_only_against_the_anchor(model, form):
    inputs = creeping(model, 8)
    reused = {}
    for ref in ("last_step", "anchor"):
        policy = dare(form, {"lo": 0.05, "hi": 0.06}, ref=ref)
        reused[ref] = [recomputed(plan, form, ALL)[:8] for plan in decide(model, policy, inputs)]
        assert reused[ref][0].all()
    assert not any(fresh.any() for fresh in reused["last_step"][1:])
    assert all(any(fresh[row] for fresh in reused["anchor"][1:]) for row in range(8))


def test_the_drift_is_that_of_unrotated_biased_queries(model):
    before, after = creeping(model, 2)
    weight, bias = (model.block(1).qkv.weight[:8], model.block(1).qkv.bias)
    plain = [model.attn_norm(1, h) @ weight.T for h in (before, after)]
    biased = [q if bias is None else q + bias[:8] for q in plain]
    probes = [LayerProbe(model, None, 1, h, ALL, 8) for h in (before, after)]
    queries = [probe.project("q", heads=slice(0, 1))[:, :, 0] for probe in probes]
    assert (queries[0] - biased[0])[:, 1:].abs().max() > 1e-3
    moved = drift(queries[1], queries[0])
    torch.testing.assert_close(moved, drift(biased[1], biased[0]), atol=ATOL, rtol=0)
    other = (moved - drift(plain[1], plain[0])).abs().max()
    assert (other > 1e-6) == (bias is not None)
    for form in FORMS:
        tau = float(moved.sort().values[0, 3:5].mean())
        policy = dare(form)
        policy.thresholds = (tau,) * 3
        *_, plan = decide(model, policy, [before, after])
        assert torch.equal(recomputed(plan, form, ALL)[:8], (moved > tau)[0])


@pytest.mark.parametrize("window", [NoCache, DualCache])
@pytest.mark.parametrize(("form", "family"), [(DareKv, "gqa"), (DareO, "shifted-mha")])
def test_a_padded_batch_decodes_what_single_runs_do(form, family, window):
    model, prompts = model_of(family), [*make_prompts(9, 5), make_prompts(9)[0]]

    def make():
        return Stack(window(), dare(form))

    spec = make_spec(**TWO_BLOCKS)
    batch, rows = tapped(model, spec, prompts, make)
    for i, prompt in enumerate(prompts):
        single, alone = tapped(model, spec, [prompt], make)
        assert np.array_equal(batch.ids[i, 9:], single.ids[0, len(prompt) :])
        for (view, _, x, _), (_, _, y, _) in zip(rows, alone, strict=True):
            torch.testing.assert_close(x[i, view.real[i], :39], y[0, :, :39], atol=ATOL, rtol=0)


@torch.inference_mode()
def forced(state, step):
    """A forward of the whole canvas with nothing committed."""
    view = replace(state._view(slice(6, 10), 0, step), step=step)
    state._forward(state.branches[0], view, state.canvas, Recorder(), FlopCounter(state.run.info))


@pytest.mark.parametrize("form", FORMS)
def test_a_sequence_with_nothing_to_recompute_keeps_its_values(model, form):
    def held(careless):
        notes, policy = [], dare(form, skip_first_layers=0)
        if careless:
            plan = policy.plan
            policy.plan = lambda layer, probe: replace(plan(layer, probe), idle=None)
        noted(policy, notes)
        state = Denoiser(micro_job(model, make_spec(), make_prompts(6, 6), policy=lambda: policy))
        forced(state, 0)
        state.canvas[1, 3:5] = 7
        site = state.branches[0].store._data[0, "attn" if form is DareO else "v"]
        site[0] = 7.0
        forced(state, 1)
        return notes[3][2], site[0]

    plan, values = held(careless=False)
    assert (plan.k if form is DareKv else plan.attn).tolist() == [[0, 0], [3, 4]]
    assert plan.idle.tolist() == [True, False]
    assert (values == 7).all()
    assert not (held(careless=True)[1] == 7).all()


def test_dare_o_reuses_all_unchanged_tokens_if_the_first_layer_is_not_skipped(model):
    """Unchanged tokens keep their queries in layer 0, so their outputs, so all queries above."""

    def rows_renewed(skip):
        notes = []
        policy = noted(dare(DareO, skip_first_layers=skip), notes)
        events = run(model, make_spec(), policy=lambda: policy).events
        committed = [event.positions.tolist() for event in events[:-1]]
        last = [recomputed(plan, DareO, ALL) for *_, plan in notes[5::3]]
        return committed, [rows.nonzero()[:, 0].tolist() for rows in last]

    committed, rows = rows_renewed(0)
    assert rows == committed
    committed, rows = rows_renewed(1)
    assert max(map(len, rows)) > 1


@pytest.mark.parametrize("window", [NoCache, DualCache])
@pytest.mark.parametrize("form", FORMS)
def test_the_counter_agrees_with_torch(form, window):
    policy = dare(form)
    job = micro_job(model_of("shifted-gqa"), make_spec(), policy=lambda: Stack(window(), policy))
    counts = set()
    for event, flops in counted(denoise(Denoiser(job)), 6):
        assert bool(event.flops[4]) == (form is DareO and event.kind == "partial")
        counts.add(flops)
    assert len(counts) > 2


def test_marked_rows_are_global_ascending_and_padded_by_repetition():
    mask = torch.tensor([[0, 1, 0, 1, 1], [0, 0, 0, 0, 0], [1, 0, 0, 0, 0]], dtype=torch.bool)
    local = [[1, 3, 4], [0, 0, 0], [0, 0, 0]]
    index = torch.tensor([[2, 3, 5, 7, 8]]).expand(3, -1)
    for active, expected in (
        (ALL, local),
        (slice(4, 9), [[n + 4 for n in row] for row in local]),
        (index, [[3, 7, 8], [2, 2, 2], [2, 2, 2]]),
    ):
        rows, counts = marked_rows(mask, active)
        assert (rows.tolist(), counts) == (expected, [3, 0, 1])
    assert marked_rows(torch.ones(2, 5, dtype=torch.bool), slice(4, 9)) == (ALL, [5, 5])
    assert marked_rows(torch.zeros(2, 5, dtype=torch.bool), ALL) == (slice(0, 0), [0, 0])
