"""forward: rows through the layers to the logits of the rows asked for; the hot path.

It has two parts, so that the first, whose shapes recur, can be captured and replayed (see
engine.generate.capture.forwards): the last layer computes only rows whose logits are wanted, fewer in each step.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, NamedTuple

from torch import Tensor

from engine.cache.base import CachePolicy, StepPlan
from engine.cache.layer_probe import LayerPlan, LayerProbe
from engine.cache.store import ActivationStore
from engine.core.rows import ALL, Rows, count, is_empty, local_rows, same_rows, take
from engine.models.base import ModelAdapter
from engine.models.flops import FlopCounter

UnreadRows = Literal["drop", "shadow", "full"]  # not computed; computed aside; as all others are


class ResidualStream(NamedTuple):
    """The residual stream `h` [B, n, D] at global `rows`."""

    h: Tensor
    rows: Rows


@dataclass(frozen=True)
class ForwardPass:
    """What a forward goes by, apart from the rows whose logits it gives.

    `canvas` [B, T] ids; `pad_mask` [B, T] bool, True at real positions, None where all are;
    `counter` takes the FLOPs. `unread` says what becomes of a plan's rows that neither this step
    nor a later one reads.
    """

    adapter: ModelAdapter
    store: ActivationStore
    policy: CachePolicy
    plan: StepPlan
    canvas: Tensor
    pad_mask: Tensor | None
    counter: FlopCounter
    unread: UnreadRows = "drop"

    def begin(self) -> ResidualStream:
        """Rows through all layers but the last; which logits are wanted makes no difference."""
        stream = ResidualStream(
            self.adapter.embed(take(self.canvas, self.plan.rows)), self.plan.rows
        )
        for layer in range(self.store.layers - 1):
            stream = self._layer(layer, stream, self.plan.output_rows if layer == 0 else None)
        return stream

    def finish(self, stream: ResidualStream, logit_rows: Rows) -> Tensor:
        """Raw logits [B, n, V] of the hidden rows `logit_rows`: the last layer and the head.

        A feed-forward output of the last layer that is kept may be read in a later step.
        """
        last = self.store.layers - 1
        kept = self.store.keeps("ffn") or self.store.keeps("branch")
        read = logit_rows if not kept else self.plan.output_rows if last == 0 else None
        h, rows = self._layer(last, stream, read)
        wanted = take(h, local_rows(rows, logit_rows))
        self.counter.head(wanted.shape[0] * wanted.shape[1])
        return self.adapter.logits(wanted)

    def _layer(self, layer: int, stream: ResidualStream, read: Rows | None) -> ResidualStream:
        """The stream after a layer, at the rows `read` of it; None: at all that entered it."""
        probe = LayerProbe(
            self.adapter, self.store, layer, *stream, self.canvas.shape[1], self.plan.keys,
            self._visible, self.counter,
        )  # fmt: skip
        layer_plan = lean = self.policy.plan(layer, probe)
        if self.unread != "full":
            lean = _narrowed(probe, layer_plan, read)
        h = _advanced(probe, lean, take(stream.h, local_rows(stream.rows, probe.out)))
        if self.unread == "shadow" and lean is not layer_plan:
            _carry_out(probe, layer_plan)
        return ResidualStream(h, probe.out)

    @cached_property
    def _visible(self) -> Tensor | None:
        """Which keys may be seen, [B, keys] bool; None: all."""
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
) -> Tensor:
    """Raw logits [B, n, V] of the hidden rows `logit_rows`, a subset of `plan.rows`; see `ForwardPass`."""
    counter = counter or FlopCounter(adapter.info)
    step = ForwardPass(adapter, store, policy, plan, canvas, pad_mask, counter, unread)
    return step.finish(step.begin(), logit_rows)


def _advanced(probe: LayerProbe, plan: LayerPlan, h: Tensor) -> Tensor:
    """The residual stream `h` at `probe.out` after the layer."""
    if probe.store.keeps("branch"):
        return h + _whole(probe, plan)
    h = h + _attention(probe, plan)
    return h.add_(_mlp(probe, plan, h))


def _narrowed(probe: LayerProbe, plan: LayerPlan, read: Rows | None) -> LayerPlan:
    """The plan of a layer of whose output only `read` is wanted, which becomes `probe.out`.

    An attention output that is kept by itself is computed as planned: it may be wanted later.
    """
    if read is None or same_rows(read, probe.rows):
        return plan
    store, (batch, active) = probe.store, probe.h.shape[:2]
    alone = store.keeps("attn") and not store.keeps("ffn")
    probe.out = read
    for name in ("attn", "ffn"):
        asked = getattr(plan, name)
        complete = asked is ALL or same_rows(asked, probe.rows)
        assert complete or store.keeps(name), f"{name}: rows left out need a kept {name}"
        if not complete or (name == "attn" and alone):
            continue
        plan = replace(plan, ffn=read) if name == "ffn" else replace(plan, attn=read)
        if name == "ffn" or not probe.attended:
            probe.counter.add_unused_rows(probe.layer, name, batch * (active - count(read, active)))
    return plan


def _carry_out(probe: LayerProbe, plan: LayerPlan) -> None:
    """Compute all that a plan says, for who listens to the adapter; it goes nowhere else."""
    probe.counter = FlopCounter(probe.adapter.info)
    whole = plan.attn is ALL or same_rows(plan.attn, probe.rows)
    attn = probe.attn(plan) if whole else probe.store.read(probe.layer, "attn", probe.rows)
    _feed(probe, take(probe.h + attn, local_rows(probe.rows, plan.ffn)))


def _attention(probe: LayerProbe, plan: LayerPlan) -> Tensor:
    """Attention branch at `probe.out`, [B, n, D]."""
    if is_empty(plan.attn):
        probe.renew(plan)
        return probe.store.read(probe.layer, "attn", probe.out)
    return _branch(probe, "attn", plan.attn, probe.attn(plan), plan.idle)


def _mlp(probe: LayerProbe, plan: LayerPlan, h: Tensor) -> Tensor:
    """Feed-forward branch at `probe.out`, whose residual stream is `h`, [B, n, D]."""
    if is_empty(plan.ffn):
        return probe.store.read(probe.layer, "ffn", probe.out)
    out = _feed(probe, take(h, local_rows(probe.out, plan.ffn)))
    return _branch(probe, "ffn", plan.ffn, out, plan.idle)


def _feed(probe: LayerProbe, h: Tensor) -> Tensor:
    probe.counter.feed_forward(probe.layer, h.shape[0] * h.shape[1])
    return probe.adapter.mlp(probe.layer, h)


def _whole(probe: LayerProbe, plan: LayerPlan) -> Tensor:
    """Both branches at `probe.out` in one sum, [B, n, D], where only that sum is kept."""
    assert same_rows(plan.attn, plan.ffn), "branch: attention and FFN renew the same rows"
    if is_empty(plan.attn):
        probe.renew(plan)
        return probe.store.read(probe.layer, "branch", probe.out)
    fresh = probe.attn(plan)
    fresh = fresh + _feed(probe, take(probe.h, local_rows(probe.rows, plan.attn)) + fresh)
    return _branch(probe, "branch", plan.attn, fresh, plan.idle)


def _branch(probe: LayerProbe, name: str, rows: Rows, fresh: Tensor, idle: Tensor | None) -> Tensor:
    """A branch output at `probe.out`: `fresh` at the `rows` recomputed, kept elsewhere."""
    rows = probe.rows if rows is ALL else rows
    wanted = same_rows(rows, probe.out)
    if not probe.store.keeps(name):
        assert wanted, f"{name}: rows left out need a kept {name}"
        return fresh
    probe.store.write(probe.layer, name, rows, fresh, None if same_rows(rows, probe.rows) else idle)
    return fresh if wanted else probe.store.read(probe.layer, name, probe.out)
