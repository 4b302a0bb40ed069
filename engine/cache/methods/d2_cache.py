"""d2Cache: rows chosen by certainty and by the attention they gather (arXiv 2509.23094)."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from engine.cache.base import CachePolicy, LayerPlan, LayerProbe, RunInfo, StepPlan, StepView
from engine.cache.calibration.density import density
from engine.cache.store import Site
from engine.config.knobs import knob
from engine.core.device import HostCopy
from engine.core.rows import put, take, unrepeated, upload_mask


@dataclass
class D2Cache(CachePolicy):
    """K and V of all rows are kept; a step recomputes the rows that `choose` names.

    Only positions whose row was recomputed can be committed, and only their confidence is renewed
    (the released code keeps that of the first step). The bonus of the current block goes to the
    block that the step decodes.
    """

    name = "d2_cache"
    title = "d2Cache"
    paper = "arXiv 2509.23094"
    summary = "Recomputes the most certain masks, the newest tokens and what attention flows to."

    current_k: int = knob(
        32,
        1,
        1024,
        label="Candidates",
        help="Masked positions recomputed in a step, the most certain ones.",
    )
    rollout_p: float = knob(
        0.1,
        0.0,
        1.0,
        label="Roll-out share",
        help="Other rows recomputed: the fewest that gather this share of the attention flow.",
    )
    sigma: float = knob(
        10.0, 0.5, 1000.0, label="Sigma", help="How far, in positions, a known token reaches."
    )
    inflate_w: int = knob(
        0,
        0,
        64,
        label="Inflation window",
        help="Rows between two recomputed ones at most this far apart are recomputed too.",
    )
    refresh_interval: int | None = knob(
        None,
        1,
        1024,
        label="Refresh interval",
        optional=True,
        help="Full forward every so many steps; empty: only the first, as published.",
    )

    def sites(self, run: RunInfo) -> tuple[Site, ...]:
        """K, V and, of the rows fed, how much they see of each row, [B, T, T]."""
        return Site("k"), Site("v"), Site("weights", run.length)

    def start(self, run: RunInfo) -> None:
        """Nothing is known yet."""
        if getattr(self, "run", None) != run:  # else the tensors stay: captured forwards use them
            self.influence = torch.zeros(run.batch, run.length)
            self._seen = torch.ones(run.batch, run.length, dtype=torch.bool)
        super().start(run)
        self._open = np.zeros((run.batch, run.length), bool)
        self._sure = np.zeros((run.batch, run.length))
        self.flow = np.zeros((run.batch, run.length))
        self.visible = np.ones((run.batch, run.length), bool)
        self._late: tuple[StepView, HostCopy] | None = None
        self._chosen = -1, self._open

    def can_commit(self, count: int) -> bool:
        """The current block's masks are candidates before all others."""
        return count <= self.current_k or self.refresh_interval == 1

    def confidence_mask(self, step: int, masked: np.ndarray, block: slice) -> np.ndarray | None:
        """Every mask whose row is recomputed."""
        if self._full(step):
            return None if self._full(step + 1) else masked
        self._chosen = step, self.choose(masked, block)
        return masked & self._shifted(self._chosen[1], forward=True)

    def begin_step(self, view: StepView) -> StepPlan:
        """All rows at a refresh, else the chosen ones."""
        self._weighing = not self._full(view.step + 1)
        rows = None
        if not self._full(view.step):
            needed = np.zeros_like(view.masked_host)
            rows = np.maximum(view.needs_host - self.run.info.logit_shift, 0)
            np.put_along_axis(needed, rows, True, 1)
            step, chosen = self._chosen  # by what watches, which not every branch does
            if step != view.step:
                chosen = self.choose(view.masked_host, view.block)
            rows = chosen | needed
        self._open = view.masked_host
        if rows is None:
            return StepPlan()
        return StepPlan(upload_mask(rows, view.canvas.device), kind="partial")

    def plan(self, layer: int, probe: LayerProbe) -> LayerPlan:
        """Every row that entered; their attention weights go into the roll-out."""
        plan = LayerPlan()
        if self._weighing:
            self._roll(layer, probe, probe.weights(plan))
        return plan

    def end_step(self, view: StepView, confidence: Tensor, committed: Tensor) -> None:
        """Send for the confidences and the roll-out; the next step reads them."""
        self._late = view, HostCopy(confidence.double(), self.influence.double(), self._seen)

    def renew(self, view: StepView, told: np.ndarray) -> None:
        """Take the confidences `told` [B, n] of a step; of a repeated row the first counts."""
        for row, needs, new in zip(self._sure, view.needs_host, told, strict=True):
            places, first = np.unique(needs, return_index=True)
            row[places] = new[first]

    @property
    def confidence(self) -> np.ndarray:
        """What is known of the confidences of all positions, [B, T]."""
        self._hear()
        return self._sure

    def capture_key(self) -> tuple[object, ...]:
        """Whether the next step weighs."""
        return (self._weighing,)

    def planned(self, view: StepView) -> tuple[str, str, str]:
        """Everything at a refresh; else rows of any region, chosen by what was seen of them."""
        return super().planned(view) if self._full(view.step) else ("partial",) * 3

    def choose(self, masked: np.ndarray, block: slice) -> np.ndarray:
        """Rows [B, T] bool of a step, given the `masked` positions [B, T] before it.

        The rows that predict the candidates, tokens that became known in the last step, the nucleus
        of the roll-out among all other rows, and small gaps between these.
        """
        rows = self._shifted(self._candidates(masked, block)) | (self._open & ~masked)
        self._hear()
        for row, weight, rest in zip(rows, self.flow, self.visible & ~rows, strict=True):
            row[nucleus(weight, rest, self.rollout_p)] = True
            for left, right in pairwise(np.flatnonzero(row)):
                if right - left <= self.inflate_w:
                    row[left:right] = True
        return rows

    def _candidates(self, masked: np.ndarray, block: slice) -> np.ndarray:
        """The `current_k` most certain masks, those of the block first, as a mask [B, T]."""
        start = self.run.prompt_length
        known = torch.from_numpy(~masked[:, start:])
        score = np.zeros_like(self._sure)
        score[:, start:] = self.confidence[:, start:] * density(known, self.sigma).numpy()
        found = np.zeros_like(masked)
        for row, free, certain in zip(found, map(np.flatnonzero, masked), score, strict=True):
            free = self._within_reach(free)
            ranked = free[np.lexsort((-certain[free], free >= block.stop))]
            row[ranked[: self.current_k]] = True
        return found

    def _within_reach(self, free: np.ndarray) -> np.ndarray:
        """Masks out of `free`, up to the end of the block that holds the `current_k`-th."""
        start, size = self.run.prompt_length, self.run.block_length
        last = free[: self.current_k][-1:] - start
        return free[free < start + (last // size + 1) * size]

    def _roll(self, layer: int, probe: LayerProbe, weights: Tensor) -> None:
        """After the last layer: how much of each row flows into all rows that are not padding.

        That are the column sums of M_L ... M_1 with M = rownorm(E + I), E being `weights` [B, n, T]
        at the rows fed, else 0; a row of weights sums to 1. Taken from the last layer down, no
        product is wider than a vector.
        """
        if layer == 0:
            seen = self._seen if probe.key_mask is None else probe.key_mask
            self._seen = seen.to(weights.device, non_blocking=True)
        probe.store.write(layer, "weights", probe.rows, weights.to(probe.h.dtype))
        probe.counter.select(layer, 2 * weights.numel())
        if layer < self.run.info.layers - 1:
            return
        flow = self._seen.to(weights)
        single = unrepeated(probe.rows, weights[..., 0])
        for below in range(layer, -1, -1):
            fed = take(flow, probe.rows) / 2
            put(flow, probe.rows, fed)
            of_layer = probe.store.read(below, "weights", probe.rows).to(flow.dtype)
            flow += (fed * single)[:, None].matmul(of_layer)[:, 0]
        if self.influence.device == flow.device and self.influence.dtype == flow.dtype:
            self.influence.copy_(flow)
        else:
            self.influence = flow

    def _hear(self) -> None:
        """Read what the last step sent."""
        if self._late is not None:
            view, landing = self._late
            told, self.flow, self.visible = landing.get()
            self._late = None
            self.renew(view, told)

    def _full(self, step: int) -> bool:
        every = self.refresh_interval
        return step == 0 or (every is not None and step % every == 0)

    def _shifted(self, mask: np.ndarray, forward: bool = False) -> np.ndarray:
        """The rows that predict positions; `forward`: the positions that rows predict."""
        shift, size = self.run.info.logit_shift, mask.shape[1]
        out, here, there = np.zeros_like(mask), slice(0, size - shift), slice(shift, size)
        out[:, there if forward else here] = mask[:, here if forward else there]
        return out

    @classmethod
    def exact(cls) -> D2Cache:
        """A refresh in every step."""
        return cls(refresh_interval=1)


def nucleus(weight: np.ndarray, rest: np.ndarray, share: float) -> np.ndarray:
    """Positions out of `rest` [T] bool of largest `weight` [T] that together hold `share` of it.

    Never more than the share, but at least one.
    """
    places = np.flatnonzero(rest)
    ranked = places[np.argsort(-weight[places], kind="stable")]
    held = weight[ranked].cumsum()
    return ranked[: max(1, np.count_nonzero(held <= share * held[-1:]))]
