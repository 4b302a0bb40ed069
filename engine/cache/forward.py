"""forward: rows through the layers to the logits of the wanted rows; the hot path.

A forward has two parts. The first has recurring shapes, so it can be captured and replayed
(engine.generate.capture.forwards). The second depends on the rows whose logits are wanted, fewer in
each step: the head, and the last layer, which computes only these rows unless the store keeps its
outputs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, NamedTuple

from torch import Tensor

from engine.cache.base import CachePolicy, StepPlan
from engine.cache.block_keys import BlockKeys
from engine.cache.layer_probe import LayerPlan, LayerProbe
from engine.cache.store import ActivationStore
from engine.core.rows import ALL, Rows, count, is_empty, local_rows, same_rows, take
from engine.models.base import ModelAdapter
from engine.models.flops import FlopCounter

UnreadRows = Literal["drop", "shadow", "full"]
LayerObserver = Callable[[int, Tensor, Rows], None]  # layer, residual stream after it, its rows


class ResidualStream(NamedTuple):
    """The residual stream `h` [B, n, D] at global `rows`."""

    h: Tensor
    rows: Rows


@dataclass(frozen=True)
class ForwardPass:
    """A forward pass of a step, without the rows whose logits it gives.

    `canvas` [B, T] ids; `pad_mask` [B, T] bool is True at real positions, None if all are;
    `counter` counts the FLOPs. `unread` is the treatment of planned rows that neither this step nor
    a later one reads: `drop` does not compute them, `shadow` computes them separately for hooks on
    the adapter, `full` computes them like all others. `observe` is called after each layer; later
    layers do not change the tensor that it gets.
    """

    adapter: ModelAdapter
    store: ActivationStore
    policy: CachePolicy
    plan: StepPlan
    canvas: Tensor
    pad_mask: Tensor | None
    counter: FlopCounter
    unread: UnreadRows = "drop"
    observe: LayerObserver | None = None

    def begin(self) -> ResidualStream:
        """The layers that are independent of the logits that are wanted."""
        rows = self.plan.rows
        stream = ResidualStream(self.adapter.embed(take(self.canvas, rows), rows), rows)
        for layer in range(self.store.layers - (not self._keeps_outputs)):
            stream = self._layer(layer, stream, self.plan.output_rows if layer == 0 else None)
        return stream

    def finish(self, stream: ResidualStream, logit_rows: Rows) -> Tensor:
        """Raw logits [B, n, V] of the hidden rows `logit_rows`, from what `begin` returned."""
        if not self._keeps_outputs:
            stream = self._layer(self.store.layers - 1, stream, logit_rows)
        wanted = take(stream.h, local_rows(stream.rows, logit_rows))
        self.counter.head(wanted.shape[0] * wanted.shape[1])
        return self.adapter.logits(wanted)

    @property
    def _keeps_outputs(self) -> bool:
        """Whether the last layer computes all planned rows, since later steps may read them."""
        return self.store.keeps_output("ffn")

    def _layer(self, layer: int, stream: ResidualStream, read: Rows | None) -> ResidualStream:
        """The stream after a layer at its rows `read`; None: at all rows that entered it."""
        probe = LayerProbe(
            self.adapter, self.store, layer, *stream, self.canvas.shape[1], self.plan.keys,
            self._visible, self.counter, self._block_keys,
        )  # fmt: skip
        layer_plan = computed = self.policy.plan(layer, probe)
        if self.unread != "full":
            computed = _without_unread(probe, layer_plan, read)
        h = _layer_output(probe, computed, take(stream.h, local_rows(stream.rows, probe.out)))
        if self.unread == "shadow" and computed is not layer_plan:
            _compute_for_hooks(probe, layer_plan)
        if self.observe is not None:
            self.observe(layer, h, probe.out)
        return ResidualStream(h, probe.out)

    @cached_property
    def _block_keys(self) -> BlockKeys | None:
        """The keys of each row if attention is block-causal."""
        info = self.adapter.info
        if not info.block_causal:
            return None
        assert self.plan.keys is ALL, "the blocks decide on the keys"
        assert self.plan.key_mask is None, "the blocks decide on the keys"
        length = self.canvas.shape[1]
        return BlockKeys(info.block_size, self.plan.rows, length, self.pad_mask)

    @cached_property
    def _visible(self) -> Tensor | None:
        """Keys that may be attended to, [B, keys] bool; None: all."""
        plan = self.plan
        masks = [take(m, plan.keys) for m in (self.pad_mask, plan.key_mask) if m is not None]
        if len(masks) == 2:
            return masks[0] & masks[1]
        return masks[0] if masks else None


def forward(
    adapter: ModelAdapter,
    store: ActivationStore,
    policy: CachePolicy,
    plan: StepPlan,
    canvas: Tensor,
    pad_mask: Tensor | None,
    logit_rows: Rows,
    counter: FlopCounter | None = None,
    unread: UnreadRows = "drop",
    observe: LayerObserver | None = None,
) -> Tensor:
    """Raw logits [B, n, V] of the hidden rows `logit_rows`, a subset of `plan.rows`.

    The arguments are those of `ForwardPass`.
    """
    counter = counter or FlopCounter(adapter.info)
    step = ForwardPass(adapter, store, policy, plan, canvas, pad_mask, counter, unread, observe)
    return step.finish(step.begin(), logit_rows)


def _layer_output(probe: LayerProbe, plan: LayerPlan, h: Tensor) -> Tensor:
    """The residual stream `h` at `probe.out` after the layer."""
    if probe.store.keeps("branch"):
        return _with_joint_branches(probe, plan, h)
    h = h + _attention(probe, plan)
    return h.add_(_mlp(probe, plan, h))


def _without_unread(probe: LayerProbe, plan: LayerPlan, read: Rows | None) -> LayerPlan:
    """The plan of a layer whose output is read at the rows `read` only; sets `probe.out` to them.

    If the store keeps attention outputs but no feed-forward outputs, attention is computed as
    planned, since a later step may read it.
    """
    if read is None or same_rows(read, probe.rows):
        return plan
    store, (batch, active) = probe.store, probe.h.shape[:2]
    alone = store.keeps("attn") and not store.keeps("ffn")
    probe.out = read
    for name in ("attn", "ffn"):
        planned = getattr(plan, name)
        complete = planned is ALL or same_rows(planned, probe.rows)
        assert complete or store.keeps_output(name), f"{name}: rows left out need a stored {name}"
        if not complete or (name == "attn" and alone):
            continue
        plan = replace(plan, ffn=read) if name == "ffn" else replace(plan, attn=read)
        if name == "ffn" or not probe.attended:
            probe.counter.add_unused_rows(probe.layer, name, batch * (active - count(read, active)))
    return plan


def _compute_for_hooks(probe: LayerProbe, plan: LayerPlan) -> None:
    """Compute all planned rows for hooks on the adapter, and discard the results."""
    probe.counter = FlopCounter(probe.adapter.info)
    whole = plan.attn is ALL or same_rows(plan.attn, probe.rows)
    attn = probe.attn(plan) if whole else probe.store.read(probe.layer, "attn", probe.rows)
    _feed_forward(probe, take(probe.h + attn, local_rows(probe.rows, plan.ffn)))


def _attention(probe: LayerProbe, plan: LayerPlan) -> Tensor:
    """Attention branch at `probe.out`, [B, n, D]."""
    if is_empty(plan.attn):
        probe.update_kv(plan)
        return probe.store.read(probe.layer, "attn", probe.out)
    return _branch(probe, "attn", plan.attn, probe.attn(plan), plan.idle)


def _mlp(probe: LayerProbe, plan: LayerPlan, h: Tensor) -> Tensor:
    """Feed-forward branch at `probe.out`, whose residual stream is `h`, [B, n, D]."""
    if is_empty(plan.ffn):
        return probe.store.read(probe.layer, "ffn", probe.out)
    out = _feed_forward(probe, take(h, local_rows(probe.out, plan.ffn)))
    return _branch(probe, "ffn", plan.ffn, out, plan.idle)


def _feed_forward(probe: LayerProbe, h: Tensor) -> Tensor:
    probe.counter.feed_forward(probe.layer, h.shape[0] * h.shape[1])
    return probe.adapter.mlp(probe.layer, h)


def _with_joint_branches(probe: LayerProbe, plan: LayerPlan, h: Tensor) -> Tensor:
    """`_layer_output` if the store keeps the sum of both branches."""
    rows = plan.attn
    assert same_rows(rows, plan.ffn), "branch: attention and FFN recompute the same rows"
    if is_empty(rows):
        probe.update_kv(plan)
        return h + probe.store.read(probe.layer, "branch", probe.out)
    attn = probe.attn(plan)
    attended = probe.gather(probe.h, rows, attn)
    ffn = _feed_forward(probe, attended)
    whole = same_rows(probe.out, probe.rows) and not isinstance(probe.rows, Tensor)
    if whole and isinstance(rows, Tensor) and plan.idle is None:
        return probe.add_branches(h, rows, attn, ffn)
    fresh = attn + ffn
    branch = _branch(probe, "branch", rows, fresh, plan.idle)
    # Without rows left out, the roundings are those of a store that keeps no outputs.
    return attended.add_(ffn) if branch is fresh else h + branch


def _branch(probe: LayerProbe, name: str, rows: Rows, fresh: Tensor, idle: Tensor | None) -> Tensor:
    """A branch output at `probe.out`: `fresh` at the recomputed `rows`, stored values elsewhere."""
    rows = probe.rows if rows is ALL else rows
    wanted = same_rows(rows, probe.out)
    if not probe.store.keeps(name):
        assert wanted, f"{name}: rows left out need a stored {name}"
        return fresh
    probe.store.write(probe.layer, name, rows, fresh, None if same_rows(rows, probe.rows) else idle)
    return fresh if wanted else probe.store.read(probe.layer, name, probe.out)
