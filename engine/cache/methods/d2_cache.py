"""d2Cache: rows chosen by certainty and by the attention they gather (arXiv 2509.23094)."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from engine.cache.base import (
    CachePolicy,
    DataRows,
    Kinds,
    LayerPlan,
    LayerProbe,
    RunInfo,
    Speedups,
    StepPlan,
    StepView,
)
from engine.cache.calibration.density import density
from engine.cache.store import Site
from engine.config.knobs import knob
from engine.core.device import HostCopy
from engine.core.reasons import Reason
from engine.core.rows import count, put, take, unrepeated, upload_mask


@dataclass
class D2Cache(CachePolicy):
    """K and V of all rows are stored; a step recomputes the rows that `choose` names.

    Only positions whose row was recomputed can be committed, and only their confidence is updated
    (the released code keeps that of the first step). The candidates of the block that the step
    decodes come first.
    """

    name = "d2_cache"
    title = "d2Cache"
    paper = "arXiv 2509.23094"
    summary = "Recomputes the most certain masks, the newest tokens and the rows attended to most."
    reasons = (
        Reason("this step recomputes every row", "full"),
        Reason("it is one of {rows} chosen for this step: the rows of the most certain masks, of "
               "the newest tokens, those that attention flows to, and the rows in small gaps "
               "between these; {times}", "!reused !inflate_w=0"),
        Reason("it is one of {rows} chosen for this step: the rows of the most certain masks, of "
               "the newest tokens, and those that attention flows to; {times}", "!reused"),
        Reason("it is not one of {rows} chosen for this step: the rows of the most certain masks, "
               "of the newest tokens, and those that attention flows to; {times}"),
    )  # fmt: skip
    speedups = Speedups(capture_key=lambda policy: (policy._weighing,))

    current_k: int = knob(
        32,
        1,
        1024,
        label="Candidates",
        help="Number of masked positions recomputed in a step, the most certain ones.",
        search=(8, 16, 32, 64),
    )
    rollout_p: float = knob(
        0.1,
        0.0,
        1.0,
        label="Roll-out share",
        help="Beside candidates and new tokens, the rows that receive most of the attention flow "
        "are recomputed, up to this share of what the rest receives; at least one.",
        search=(0.05, 0.1, 0.2, 0.4),
    )
    sigma: float = knob(
        10.0,
        0.5,
        1000.0,
        label="Sigma",
        help="How far a known token raises the certainty around it, in positions.",
    )
    inflate_w: int = knob(
        0,
        0,
        64,
        label="Inflation window",
        help="Rows between two recomputed rows at most this far apart are recomputed too.",
    )
    refresh_interval: int | None = knob(
        None,
        1,
        1024,
        label="Refresh interval",
        optional=True,
        help="Steps between full forwards; empty: only the first step, as published.",
        search=(8, 16, 32, None),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self._assumed_share: float | None = None

    def begin_step(self, view: StepView) -> StepPlan:
        """All rows at a refresh, else the chosen ones."""
        self._weighing = not self._full(view.step + 1)
        plan, state = StepPlan(), view.known_host_state
        if not self._full(view.step):
            step, rows = self._chosen  # set by confidence_mask, which one branch alone calls
            if step != view.step:
                rows = self.choose(state.masked, state.undecided, view.block)
            needed = np.maximum(state.needs - self.run.info.logit_shift, 0)
            np.put_along_axis(rows, needed, True, 1)
            plan = StepPlan(upload_mask(rows, view.canvas.device), kind="partial")
        self._masked_before = state.masked
        return plan

    def plan(self, layer: int, probe: LayerProbe) -> LayerPlan:
        """Recompute every row that entered; the attention weights go into the roll-out."""
        plan = LayerPlan()
        if self._weighing:
            self._roll(layer, probe, probe.weights(plan))
        return plan

    def sites(self, run: RunInfo) -> tuple[Site, ...]:
        """K, V and the attention weights of the rows that entered, [B, T, T]."""
        return Site("k"), Site("v"), Site("weights", run.length)

    def start(self, run: RunInfo) -> None:
        """Reset confidences, attention flow and the rows chosen."""
        if getattr(self, "run", None) != run:  # else keep the tensors, which captured forwards use
            self.influence = torch.zeros(run.batch, run.length)
            self._visible_keys = torch.ones(run.batch, run.length, dtype=torch.bool)
        super().start(run)
        self._masked_before = np.zeros((run.batch, run.length), bool)
        self._confidence = np.zeros((run.batch, run.length))
        self.flow = np.zeros((run.batch, run.length))
        self.visible = np.ones((run.batch, run.length), bool)
        self._pending: tuple[StepView, HostCopy] | None = None
        # The last step that chose rows, and these rows.
        self._chosen: tuple[int, np.ndarray] = -1, self._masked_before

    def can_commit(self, count: int) -> bool:
        """The masks of the current block are candidates before all others."""
        return count <= self.current_k or self.refresh_interval == 1

    def check_commits(self, count: int, commits: str) -> None:
        """Raise ValueError naming `d2_cache.current_k` if the token may be no candidate."""
        if not self.can_commit(count):
            raise ValueError(
                f"d2_cache.current_k: {commits}, which must be among the candidates; the least "
                f"valid value is {count}, the block_length, unless refresh_interval is 1"
            )

    def confidence_mask(
        self, step: int, masked: np.ndarray, undecided: np.ndarray, block: slice
    ) -> np.ndarray | None:
        """Every undecided mask whose row is recomputed."""
        if self._full(step):
            return None if self._full(step + 1) else undecided
        chosen = self.choose(masked, undecided, block)
        self._chosen = step, chosen
        return undecided & self._shifted(chosen, forward=True)

    def end_step(self, view: StepView, confidence: Tensor, committed: Tensor) -> None:
        """Start to copy the confidences and the roll-out to the host, for the next step."""
        if self._assumed_share is not None:
            return
        self._pending = (
            view,
            HostCopy(confidence.double(), self.influence.double(), self._visible_keys),
        )

    @classmethod
    def exact(cls) -> D2Cache:
        """A refresh in every step."""
        return cls(refresh_interval=1)

    def planned(self, view: StepView, plan: StepPlan) -> Kinds:
        """All rows too if the roll-out takes all that are not chosen before."""
        takes_all = self.rollout_p == 1 and not self.run.padding
        if takes_all and count(plan.rows, self.run.length) == self.run.length:
            return "full", "full", "full"
        return super().planned(view, plan)

    def data_rows(self) -> DataRows:
        """The rows that attention flows to."""
        return DataRows(
            "d2Cache recomputes, beside its candidates and the newest tokens, the rows that "
            "attention flows to: a share of the canvas",
            self.rollout_p,
            "rollout_p, the most that it can be: what an attention would give that flows to all "
            "rows alike",
        )

    def with_assumed_share(self, share: float) -> D2Cache:
        """So many further rows of the canvas, evenly spread; the attention flow is not computed."""
        found = copy.copy(self)
        found._assumed_share = share
        return found

    def update_confidence(self, view: StepView, confidence: np.ndarray) -> None:
        """Store the `confidence` [B, n] of a step; of a repeated position the first counts."""
        for row, needs, new in zip(self._confidence, view.needs_host, confidence, strict=True):
            places, first = np.unique(needs, return_index=True)
            row[places] = new[first]

    @property
    def confidence(self) -> np.ndarray:
        """The latest confidence of every position, [B, T]."""
        self._receive()
        return self._confidence

    def choose(self, masked: np.ndarray, undecided: np.ndarray, block: slice) -> np.ndarray:
        """Rows [B, T] bool of a step, given `masked` and `undecided` [B, T] before it.

        They are the rows that predict the candidates, the tokens committed in the last step, the
        nucleus of the roll-out among all other rows, and small gaps between these.
        """
        rows = self._shifted(self._candidates(masked, undecided, block))
        rows |= self._masked_before & ~masked
        self._receive()
        if self._assumed_share is not None:
            return self._with_assumed_rows(rows)
        for row, weight, rest in zip(rows, self.flow, self.visible & ~rows, strict=True):
            row[nucleus(weight, rest, self.rollout_p)] = True
            for left, right in pairwise(np.flatnonzero(row)):
                if right - left <= self.inflate_w:
                    row[left:right] = True
        return rows

    def _with_assumed_rows(self, rows: np.ndarray) -> np.ndarray:
        """The chosen `rows` [B, T] and the assumed share of the canvas out of the others."""
        assert self._assumed_share is not None
        for row in rows:
            rest = np.flatnonzero(~row)
            wanted = min(max(1, round(self._assumed_share * len(row))), len(rest))
            row[rest[np.linspace(0, len(rest) - 1, wanted).astype(np.int64)]] = True
        return rows

    def _candidates(self, masked: np.ndarray, undecided: np.ndarray, block: slice) -> np.ndarray:
        """The `current_k` most certain undecided masks, those of the block first, [B, T] bool."""
        start = self.run.prompt_length
        known = torch.from_numpy(~masked[:, start:])
        score = np.zeros_like(self._confidence)
        score[:, start:] = self.confidence[:, start:] * density(known, self.sigma).numpy()
        found = np.zeros_like(masked)
        for row, free, certain in zip(found, map(np.flatnonzero, undecided), score, strict=True):
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
        """Compute, after the last layer, the attention that flows from each row into all others.

        The flow is the column sums of M_L ... M_1 over rows that are not padding, where
        M = rownorm(E + I) and E is `weights` [B, n, T] at the rows that entered, 0 elsewhere; a row
        of weights sums to 1. The product is taken from the last layer down, as vectors.
        """
        if layer == 0:
            seen = self._visible_keys if probe.key_mask is None else probe.key_mask
            self._visible_keys = seen.to(weights.device, non_blocking=True)
        probe.store.write(layer, "weights", probe.rows, weights.to(probe.h.dtype))
        probe.counter.select(layer, 2 * weights.numel())
        if layer < self.run.info.layers - 1 or self._assumed_share is not None:
            return
        flow = self._visible_keys.to(weights)
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

    def _receive(self) -> None:
        """Wait for the copies that the last step started."""
        if self._pending is not None:
            view, copies = self._pending
            confidence, self.flow, self.visible = copies.get()
            self._pending = None
            self.update_confidence(view, confidence)

    def _full(self, step: int) -> bool:
        every = self.refresh_interval
        return step == 0 or (every is not None and step % every == 0)

    def _shifted(self, mask: np.ndarray, forward: bool = False) -> np.ndarray:
        """The rows that predict positions; `forward`: the positions that rows predict."""
        shift, size = self.run.info.logit_shift, mask.shape[1]
        out, here, there = np.zeros_like(mask), slice(0, size - shift), slice(shift, size)
        out[:, there if forward else here] = mask[:, here if forward else there]
        return out


def nucleus(weight: np.ndarray, rest: np.ndarray, share: float) -> np.ndarray:
    """Positions out of `rest` [T] bool of largest `weight` [T] that together hold `share` of it.

    Never more than the share, but at least one.
    """
    places = np.flatnonzero(rest)
    ranked = places[np.argsort(-weight[places], kind="stable")]
    held = weight[ranked].cumsum()
    return ranked[: max(1, np.count_nonzero(held <= share * held[-1:]))]
