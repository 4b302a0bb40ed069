"""forward: rows through the layers to the logits of the rows asked for; the hot path."""

from __future__ import annotations

from torch import Tensor

from engine.cache.base import CachePolicy, StepPlan
from engine.cache.probe import LayerPlan, LayerProbe
from engine.cache.store import ActivationStore
from engine.flops import Ledger
from engine.models.base import ModelAdapter
from engine.rows import ALL, Rows, is_empty, same, take, within


def forward(
    adapter: ModelAdapter,
    store: ActivationStore,
    policy: CachePolicy,
    plan: StepPlan,
    canvas: Tensor,
    pad_mask: Tensor | None,
    logit_rows: Rows,
    ledger: Ledger | None = None,
) -> Tensor:
    """Raw logits [B, n, V] of the hidden rows `logit_rows`, a subset of `plan.rows`.

    `canvas` [B, T] ids; `pad_mask` [B, T] bool, True at real positions, None where all are;
    `ledger` takes the FLOPs.
    """
    ledger = ledger or Ledger(adapter.info)
    rows, length = plan.rows, canvas.shape[1]
    h = adapter.embed(take(canvas, rows))
    visible = _key_mask(plan, pad_mask)
    for layer in range(adapter.info.layers):
        probe = LayerProbe(adapter, store, layer, h, rows, length, plan.keys, visible, ledger)
        layer_plan = policy.plan(layer, probe)
        if store.keeps("branch"):
            h = h + _whole(probe, layer_plan)
        else:
            h = h + _attention(probe, layer_plan)
            h = h + _mlp(probe, layer_plan, h)
    wanted = take(h, within(rows, logit_rows))
    ledger.head(wanted.shape[0] * wanted.shape[1])
    return adapter.logits(wanted)


def _key_mask(plan: StepPlan, pad_mask: Tensor | None) -> Tensor | None:
    masks = [take(m, plan.keys) for m in (pad_mask, plan.key_mask) if m is not None]
    if len(masks) == 2:
        return masks[0] & masks[1]
    return masks[0] if masks else None


def _attention(probe: LayerProbe, plan: LayerPlan) -> Tensor:
    """Attention branch of every active row, [B, R, D]."""
    if is_empty(plan.attn):
        probe.renew(plan)
        return probe.store.read(probe.layer, "attn", probe.rows)
    return _branch(probe, "attn", plan.attn, probe.attn(plan), plan.idle)


def _mlp(probe: LayerProbe, plan: LayerPlan, h: Tensor) -> Tensor:
    """Feed-forward branch of every active row, [B, R, D]."""
    if is_empty(plan.ffn):
        return probe.store.read(probe.layer, "ffn", probe.rows)
    out = _feed(probe, take(h, within(probe.rows, plan.ffn)))
    return _branch(probe, "ffn", plan.ffn, out, plan.idle)


def _feed(probe: LayerProbe, h: Tensor) -> Tensor:
    probe.ledger.feed_forward(probe.layer, h.shape[0] * h.shape[1])
    return probe.adapter.mlp(probe.layer, h)


def _whole(probe: LayerProbe, plan: LayerPlan) -> Tensor:
    """Both branches of every active row in one sum, [B, R, D], where only that sum is kept."""
    assert same(plan.attn, plan.ffn), "branch: attention and FFN renew the same rows"
    if is_empty(plan.attn):
        probe.renew(plan)
        return probe.store.read(probe.layer, "branch", probe.rows)
    fresh = probe.attn(plan)
    fresh = fresh + _feed(probe, take(probe.h, within(probe.rows, plan.attn)) + fresh)
    return _branch(probe, "branch", plan.attn, fresh, plan.idle)


def _branch(probe: LayerProbe, name: str, rows: Rows, fresh: Tensor, idle: Tensor | None) -> Tensor:
    """A branch output at every active row: fresh where recomputed, kept elsewhere."""
    everything = rows is ALL or same(rows, probe.rows)
    if not probe.store.keeps(name):
        assert everything, f"{name}: rows left out need a kept {name}"
        return fresh
    where = probe.rows if everything else rows
    probe.store.write(probe.layer, name, where, fresh, None if everything else idle)
    return fresh if everything else probe.store.read(probe.layer, name, probe.rows)
