"""CachePolicy: which rows enter a step, and which of them each layer recomputes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from engine.cache.context import PolicyContext
from engine.cache.layer_probe import LayerPlan, LayerProbe
from engine.cache.store import Site
from engine.config.knobs import check_fields
from engine.core.regions import regions
from engine.core.rows import ALL, Rows, mark
from engine.models.base import ModelInfo


@dataclass(frozen=True)
class RunInfo:
    """What a policy may know of a run before it starts; T = prompt_length + gen_length.

    `guided` says that classifier-free guidance runs beside it; `padding` counts the padding rows
    at the start of each sequence, empty where none has any.
    """

    info: ModelInfo
    batch: int
    prompt_length: int
    gen_length: int
    block_length: int
    guided: bool = False
    padding: tuple[int, ...] = ()

    @property
    def length(self) -> int:
        """Positions of the canvas."""
        return self.prompt_length + self.gen_length


class HostState(NamedTuple):
    """`masked` [B, T] and `needs` [B, n] of a StepView on the host."""

    masked: np.ndarray
    needs: np.ndarray


@dataclass(frozen=True)
class StepView:
    """The state before a step, read-only; positions are global.

    `masked` [B, T] bool, `canvas` [B, T] ids; `block` is [lo, hi) of the block being decoded;
    `needs` [B, n] are the positions whose logits are wanted and `real` [B, n] which of them may be
    committed (the others are watched or padding); `logit_rows` are the hidden rows that give
    them. On the host, `left` [B] is how many masks the block holds, `host_state` is what else is known
    there, None where the step before is still under way; `order` holds, one array a sequence, the
    positions that the step will commit in the order of their reveal, where the unmasker knows them
    beforehand; `renewal` says that the cache beneath renews in this step all that it keeps.
    """

    run: RunInfo
    step: int
    block: slice
    block_index: int
    block_step: int
    canvas: Tensor
    masked: Tensor
    needs: Tensor
    real: Tensor
    left: np.ndarray
    real_host: np.ndarray
    host_state: HostState | None = None
    order: tuple[np.ndarray, ...] | None = None
    renewal: bool = False

    @property
    def logit_rows(self) -> Tensor:
        """Hidden rows [B, n] that predict `needs`: the only place where the shift is applied."""
        return (self.needs - self.run.info.logit_shift).clamp_min(0)

    @property
    def masked_host(self) -> np.ndarray:
        """`masked` on the host, for policies that pack rows of their own."""
        return self._told.masked

    @property
    def needs_host(self) -> np.ndarray:
        """`needs` on the host."""
        return self._told.needs

    @property
    def _told(self) -> HostState:
        assert self.host_state is not None, "who looks at the canvas waits for the step before"
        return self.host_state

    @property
    def due(self) -> np.ndarray | None:
        """The positions of `order` as a mask [B, T] bool on the host."""
        return None if self.order is None else mark(self.order, self.run.length)

    @property
    def regions(self) -> np.ndarray:
        """The rows [3, T] bool of prompt, block and rest; see engine.core.regions."""
        run = self.run
        return regions(run.prompt_length, self.block, run.length, run.info.logit_shift)

    @property
    def steps_left(self) -> int:
        """Most steps that may follow this one, if each commits at least one token a sequence."""
        return int(self.masked_host.sum(1).max()) - 1

    @property
    def window_start(self) -> int:
        """First row that a window over the current block must hold, the shift included."""
        return max(self.block.start - self.run.info.logit_shift, 0)


@dataclass(frozen=True)
class StepPlan:
    """`rows` enter the network and attend to `keys` (ALL, or a slice of positions).

    `key_mask` [B, T] bool narrows the keys further; `kind` is one of events.KINDS. Of the layers
    after the first only `output_rows` is read (None: all of `rows`), so the other rows end with the
    first layer's K and V.
    """

    rows: Rows = ALL
    keys: Rows = ALL
    key_mask: Tensor | None = None
    kind: str = "full"
    output_rows: Rows | None = None


@dataclass
class CachePolicy(ABC):
    """A caching method; its knobs are its dataclass fields, one instance serves one run at a time.

    Some choose the rows that enter a step, others choose within a layer and may stand on one of
    `stackable_on`. `may_wait` says that a sequence of a batch which has finished its block may wait
    for the others without a change to what it decodes; `sliding_window` that a window of rows may be given
    to the forward as an index, so that windows of one size are alike wherever they stand; `static_rows`,
    once started, that a step's rows follow from its number and block and that nothing is watched.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    paper: ClassVar[str] = ""
    summary: ClassVar[str] = ""
    stackable_on: ClassVar[tuple[str, ...]] = ()
    may_wait: ClassVar[bool] = False
    sliding_window: ClassVar[bool] = False
    static_rows = False

    def __post_init__(self) -> None:
        check_fields(self, f"{self.name}.")

    @property
    def follows_order(self) -> bool:
        """Whether logits are wanted only where the unmasker is about to commit."""
        return False

    def check(self, block_length: int, known_order: bool) -> None:
        """Raise ValueError naming a knob that a run of these settings makes impossible.

        `known_order` says that the unmasker knows beforehand what a step commits.
        """

    def prepare(self, context: PolicyContext) -> None:
        """Get what the policy needs to know of the checkpoint; called once, before `sites`."""

    def sites(self, run: RunInfo) -> tuple[Site, ...]:
        """Activations that the store must keep."""
        return ()

    def start(self, run: RunInfo) -> None:
        """Called before the first step, and again where the same run begins anew."""
        self.run = run

    def capture_key(self) -> tuple[object, ...] | None:
        """What, beside its StepPlan, tells the step begun last from others as `plan` sees it.

        Steps alike in both run the same operations on the same memory, so that all layers of one
        but the last can be replayed for another; what `plan` keeps for a later layer lies in the
        store. None: `plan` looks at data or draws numbers.
        """
        return None

    def confidence_mask(self, step: int, masked: np.ndarray, block: slice) -> np.ndarray | None:
        """Masked positions [B, T] bool whose confidence `end_step` is told; None: the block's.

        Their rows must enter the step. What they leave out of the block cannot be committed in
        this step; something of each sequence's open block must stay.
        """
        return None

    def logits_end(self, masked: np.ndarray, block: slice) -> np.ndarray:
        """Position [B] before which a step gives logits of every mask from the block's first on.

        `masked` [B, T] bool. For unmaskers that look beyond the block.
        """
        return np.full(len(masked), masked.shape[1])

    def can_commit(self, count: int) -> bool:
        """Whether each step lets `count` tokens of a block be committed, if so many are masked."""
        return True

    def guides(self, step: int) -> bool:
        """Whether the unconditional branch of guidance is computed in a step."""
        return True

    def begin_step(self, view: StepView) -> StepPlan:
        """Rows that enter the network in this step; they must hold `view.logit_rows`."""
        return StepPlan()

    def plan(self, layer: int, probe: LayerProbe) -> LayerPlan:
        """Rows that a layer recomputes; the sites it leaves out must be kept."""
        return LayerPlan()

    def end_step(self, view: StepView, confidence: Tensor, committed: Tensor) -> None:
        """Called after the commit; `confidence` and `committed` [B, n] belong to `view.needs`."""

    def planned(self, view: StepView) -> tuple[str, str, str]:
        """Kinds of prompt, block and rest (engine.core.regions) in the step begun with `view`.

        What the settings alone promise: where rows are chosen by what they hold, `partial`.
        """
        return "full", "full", "full"

    def facts(self) -> dict[str, list[float]]:
        """What the policy derived for each layer before the run, by name; finite numbers."""
        return {}

    @classmethod
    @abstractmethod
    def exact(cls) -> CachePolicy | None:
        """Settings under which the policy must equal no cache; None where there are none."""


def drift(new: Tensor, old: Tensor) -> Tensor:
    """1 - cosine of the last dimension, at least in float32: [B, n]."""
    wide: Any = torch.float64 if new.dtype == torch.float64 else torch.float32
    return 1 - torch.cosine_similarity(new.to(wide), old.to(wide), dim=-1, eps=1e-8)
