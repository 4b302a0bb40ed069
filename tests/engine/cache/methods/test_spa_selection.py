"""Which rows SPA-Cache selects: how many, those of largest drift, by each identifier."""

from types import SimpleNamespace

import pytest
import torch

from engine.cache.base import RunInfo
from engine.cache.layer_probe import LayerProbe
from engine.cache.methods.spa_cache import SpaCache
from engine.cache.selection import share
from engine.cache.store import ActivationStore
from engine.core.rows import ALL, to_mask
from engine.models.ops import drift
from tests.engine.cache.methods.test_spa_cache import HALF, MODES, NEVER, Noting, noted
from tests.support.micro import make_model, make_prompts


class VerifiedDraft(Noting):
    """Selects the rows that moved least."""

    def _select(self, layer, moved):
        return super()._select(layer, -moved)


def missed(model, cls, **knobs):
    """Steps at whose layer 0 a row whose token has just changed was left out."""
    result, notes = noted(model, cls, kv_mode="sparse", **HALF, **NEVER, **knobs)
    out = []
    for step, layer, _, plan, drifts in notes:
        if layer == 0 and drifts is not None:
            before = result.events[step - 1].positions
            out += [step] * (not set(before.tolist()) <= set(plan.attn[0].tolist()))
    return out


def test_changed_tokens_are_selected_in_layer_0(model):
    """All other rows of layer 0 are as they were, bit for bit."""
    assert missed(model, Noting) == []
    assert missed(model, VerifiedDraft) != []
    _, notes = noted(model, kv_mode="sparse", **HALF, **NEVER)
    for _, layer, _, plan, drifts in notes:
        if layer == 0 and drifts is not None:
            moved = drifts[0].nonzero()[:, 0].tolist()
            rest = [row for row in range(22) if row not in moved][: 11 - len(moved)]
            assert len(moved) == 1
            assert plan.attn[0].tolist() == sorted(moved + rest)


@pytest.mark.parametrize("mode", MODES)
def test_the_rows_of_largest_drift_are_chosen_as_many_as_the_budget_allows(model, mode):
    prompts = make_prompts(6, 6, 6)
    _, notes = noted(model, prompts=prompts, kv_mode=mode, first_ratio=0.1, peak_ratio=0.4)
    start = 6 - model.info.logit_shift if mode == "dense" else 0
    ratios = SpaCache(first_ratio=0.1, peak_ratio=0.4).ratios(model.info)
    assert len(set(ratios)) == 3
    checked = 0
    for _, layer, _, plan, drifts in notes:
        if drifts is None:
            continue
        assert plan.ffn.shape == (3, share(ratios[layer], 22 - start))
        assert (plan.ffn.diff(dim=1) > 0).all()
        inside = to_mask(plan.ffn, 3, 22)[:, start:]
        for row, chosen in zip(drifts, inside, strict=True):
            assert row[chosen].min() >= row[~chosen].max()
            checked += 1
    assert checked > 30


def test_the_least_ratio_is_the_number_of_rows_that_early_layers_select(model):
    counts = {}
    for least in (0.0, 0.3):
        knobs = {"kv_mode": "sparse", "peak_position": 0.7, "peak_ratio": 0.4, **NEVER}
        _, notes = noted(model, first_ratio=0.05, last_ratio=0.1, min_update_ratio=least, **knobs)
        counts[least] = {
            layer: plan.ffn.shape[1] for _, layer, _, plan, drifts in notes if drifts is not None
        }
    assert counts[0.0] == {0: share(0.05, 22), 1: counts[0.0][1], 2: share(0.1, 22)}
    assert counts[0.3] == counts[0.0] | {0: share(0.3, 22)}
    assert counts[0.0][1] > share(0.3, 22)


def decide(model, policy, inputs, layer=1):
    """Selected rows of one layer for inputs [B, T, D] of the steps 0, 1, ..., prompts of 4."""
    batch, length = inputs[0].shape[:2]
    info = RunInfo(model.info, batch, 4, length - 4, 4)
    policy.start(info)
    kept = policy.sites(info)
    store = ActivationStore(model.info, kept, batch, length, model.dtype, torch.device("cpu"))
    chosen = []
    for step, h in enumerate(inputs):
        rows = policy.begin_step(SimpleNamespace(step=step)).rows
        probe = LayerProbe(model, store, layer, h if rows is ALL else h[:, rows], rows, length)
        plan = policy.plan(layer, probe)
        probe.attn(plan)
        if step:
            chosen.append(plan.ffn)
    return torch.stack(chosen)


def walk(seed, batch=2, length=24, steps=4, scale=0.3):
    """Inputs [B, T, D] that move a little in each step."""
    noise = torch.Generator().manual_seed(seed)
    draw = lambda: torch.randn(batch, length, 32, generator=noise, dtype=torch.float64)  # noqa: E731
    inputs = [draw()]
    for _ in range(steps):
        inputs.append(inputs[-1] + scale * draw())
    return inputs


def by_value(model, inputs, ratio, layer=1):
    """What comparing V itself selects of the answer's rows."""
    rows = slice(4 - model.info.logit_shift, inputs[0].shape[1])
    count, found, before = share(ratio, rows.stop - rows.start), [], None
    for h in inputs:
        x = model.attn_norm(layer, h[:, rows])
        v = model.project(layer, "v", x, rows, rows.stop)[0].flatten(2)
        if before is not None:
            order = drift(v, before).argsort(dim=1, descending=True)[:, :count]
            found.append(order.sort(1).values + rows.start)
        before = v
    return torch.stack(found)


def test_a_full_rank_proxy_selects_what_v_selects(model):
    inputs, width = walk(1), model.info.d_kv
    expected = by_value(model, inputs, 0.3)
    knobs = {"budget": "uniform", "peak_ratio": 0.3} | NEVER
    assert torch.equal(decide(model, SpaCache(rank=width, **knobs), inputs), expected)
    assert not torch.equal(decide(model, SpaCache(rank=1, **knobs), inputs), expected)
    bare = decide(model, SpaCache(rank=width, proxy_bias=False, **knobs), inputs)
    assert torch.equal(bare, expected) == (not model.info.qkv_bias)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("identifier", ["value", "key"])
def test_scaling_what_is_compared_does_not_change_the_selection(identifier, mode):
    info = {"shift": 1, "kv": 2}
    plain, scaled, bent = (make_model(5, **info) for _ in range(3))
    start = 32 + (16 if identifier == "value" else 0)
    for model, rows in ((scaled, slice(start, start + 16)), (bent, slice(start, start + 4))):
        model.block(1).qkv.weight[rows] *= 7.5
        model.block(1).qkv.bias[rows] *= 7.5
    chosen = [
        decide(m, SpaCache(identifier=identifier, kv_mode=mode, rank=8, **NEVER), walk(2))
        for m in (plain, scaled, bent)
    ]
    assert torch.equal(chosen[0], chosen[1])
    assert not torch.equal(chosen[0], chosen[2])


@pytest.mark.parametrize("mode", MODES)
def test_the_sequences_of_a_batch_may_change_places(model, mode):
    inputs, order = walk(3, batch=3), torch.tensor([2, 0, 1])
    policy = lambda: SpaCache(kv_mode=mode, **HALF, **NEVER)  # noqa: E731
    chosen = decide(model, policy(), inputs)
    turned_round = decide(model, policy(), [h[order] for h in inputs])
    assert torch.equal(turned_round, chosen[:, order])
    assert not torch.equal(turned_round, chosen)


def test_small_drifts_are_distinguished_and_equal_rows_have_none():
    x = torch.randn(1, 50, 24, generator=torch.Generator().manual_seed(0))
    tiny = x + 1e-4 * torch.arange(50)[:, None] / 50 * x.flip(2)
    exact = drift(tiny.double(), x.double())
    assert (drift(x, x) == 0).all()
    assert (drift(x * 3, x) == 0).all()
    assert torch.allclose(drift(tiny, x).double()[0, 10:], exact[0, 10:], rtol=0.05, atol=0)
    cosine = 1 - torch.cosine_similarity(tiny, x, dim=-1)
    assert not torch.allclose(cosine.double()[0, 10:], exact[0, 10:], rtol=0.05, atol=0)
    other = 1 - torch.cosine_similarity(x, x.flip(1), dim=-1)
    assert torch.allclose(drift(x, x.flip(1)), other, atol=1e-6)
