"""CachePolicy: which rows enter a step, and which of them each layer recomputes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from torch import Tensor

from engine.cache.calibration.drift_profile import DriftProfile
from engine.cache.context import PolicyContext
from engine.cache.layer_probe import LayerPlan, LayerProbe
from engine.cache.store import Site
from engine.config.blocks import BlockGrid
from engine.config.knobs import Scalar, check_fields
from engine.core.reasons import GENERIC, Reason
from engine.core.regions import region_rows, window_kinds
from engine.core.rows import ALL, Rows, positions_mask
from engine.models.base import ModelInfo

Kinds = tuple[str, str, str]  # of the prompt, the block and the rest of the answer


@dataclass(frozen=True)
class RunInfo:
    """The shape of a run; T = prompt_length + gen_length + suffix_length.

    The canvas of a block-causal model is rounded up to whole blocks.

    `guided`: the run uses classifier-free guidance. `padding`: number of padding rows at the start
    of each sequence, empty if no sequence has any. The suffix is given text after the answer.
    `seeds` are those of the sequences' random numbers; empty: 0, 1 and so on.
    """

    info: ModelInfo
    batch: int
    prompt_length: int
    gen_length: int
    block_length: int
    guided: bool = False
    padding: tuple[int, ...] = ()
    suffix_length: int = 0
    seeds: tuple[int, ...] = ()

    @property
    def grid(self) -> BlockGrid:
        """The blocks of the canvas."""
        causal = self.info.block_causal
        return BlockGrid.of(self.prompt_length, self.gen_length, self.block_length, causal)

    @property
    def length(self) -> int:
        """Positions of the canvas; those of block-causal models are whole blocks."""
        if self.info.block_causal:
            return self.grid.stop
        return self.prompt_length + self.gen_length + self.suffix_length

    @property
    def answer_length(self) -> int:
        """Positions of the canvas behind the prompt."""
        return self.length - self.prompt_length


class DataRows(NamedTuple):
    """A number of rows that depends on values of the model, for estimates without a model.

    `what` says in a sentence without a full stop what is chosen and of which rows `share` in
    [0, 1] is the share; `default` says why that share is assumed if no other is given.
    """

    what: str
    share: float
    default: str


class HostState(NamedTuple):
    """`masked` and `needs` of a StepView on the host; `undecided` [B, T]: masks before a stop."""

    masked: np.ndarray
    needs: np.ndarray
    undecided: np.ndarray


@dataclass(frozen=True)
class StepView:
    """The state before a step, read-only; positions are global.

    `canvas` [B, T] ids, `masked` [B, T] bool; `block` is [lo, hi) of the block being decoded.
    `needs` [B, n] are the positions whose logits the step computes; `real` [B, n] marks those that
    may be committed, the others are padding or only observed (`CachePolicy.confidence_mask`).

    On the host: `left` [B] is the number of masks in the block, `real_host` a copy of `real`, and
    `host_state` is None if the previous step is still running on the device. `order` has one array
    of positions a sequence, those that the step will commit, in the order of their commit; None if
    the unmasker does not know them before the forward. `window_refreshed`: for a policy stacked on
    another one, whether that one recomputes everything that it keeps in this step. `fills`: the
    rows of known tokens that the step computes for later ones, before the block's first proposals;
    None in a step that proposes tokens (CachePolicy.rows_to_fill).
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
    window_refreshed: bool = False
    fills: slice | None = None

    @property
    def logit_rows(self) -> Tensor:
        """Hidden rows [B, n] that predict `needs`: the only place where the shift is applied."""
        return (self.needs - self.run.info.logit_shift).clamp_min(0)

    @property
    def masked_host(self) -> np.ndarray:
        """`masked` on the host. Not available to policies with `Speedups.static_rows`."""
        return self.known_host_state.masked

    @property
    def needs_host(self) -> np.ndarray:
        """`needs` on the host. Not available to policies with `Speedups.static_rows`."""
        return self.known_host_state.needs

    @property
    def known_host_state(self) -> HostState:
        """`host_state`. Not available to policies with `Speedups.static_rows`."""
        assert self.host_state is not None, "a policy with static_rows must not read the canvas"
        return self.host_state

    @property
    def order_mask(self) -> np.ndarray | None:
        """The positions of `order` as a mask [B, T] bool on the host."""
        return None if self.order is None else positions_mask(self.order, self.run.length)

    @property
    def regions(self) -> np.ndarray:
        """The rows [3, T] bool of prompt, block and rest; see engine.core.regions."""
        run = self.run
        return region_rows(run.prompt_length, self.block, run.length, run.info.region_shift)

    @property
    def rows_in_sight(self) -> Rows:
        """The rows that the block's logits depend on: ALL, or a slice of blocks up to its own."""
        return slice(0, self.block.stop) if self.run.info.block_causal else ALL

    @property
    def steps_left(self) -> int:
        """Most steps that may follow this one, if each commits at least one token a sequence."""
        return int(self.masked_host.sum(1).max()) - 1

    @property
    def window_start(self) -> int:
        """First row of a window over the current block, one earlier with shifted logits."""
        return max(self.block.start - self.run.info.logit_shift, 0)


@dataclass(frozen=True)
class StepPlan:
    """The `rows` that enter the network in a step; they attend to `keys`.

    `keys` is ALL or a slice of positions, which `key_mask` [B, T] bool narrows further. `kind` is
    one of events.KINDS: `full` if every layer recomputes every row, `partial` if some, `reuse` if
    none. If `output_rows` is given, layers after the first need only these rows; the K and V that
    the first layer computes are kept for all of `rows`. `renewed`: nothing that later steps reuse
    of `rows` is known yet, or all of it is outdated.

    If the model's attention is block-causal, `rows` is a slice and `keys` is ALL: each row attends
    to the blocks up to its own, all of which must be in `rows` or stored.
    """

    rows: Rows = ALL
    keys: Rows = ALL
    key_mask: Tensor | None = None
    kind: str = "full"
    output_rows: Rows | None = None
    renewed: bool = False


@dataclass(frozen=True)
class Speedups:
    """Properties of a policy that make a run faster and never change its result.

    Each default is always correct; set another value only if it is true of the policy.

    - `static_rows`: the rows of a step follow from its number and its block alone, and
      `confidence_mask` is not used. A GPU then need not wait for the host between steps.
    - `may_wait`: a sequence that has finished its block may take further steps, while others of
      its batch finish theirs, without a change to what it decodes. A batch is then never split.
    - `sliding_window`: a slice of rows may enter as an index, so that windows of the same size
      share one captured forward.
    - `capture_key`: a function of the policy, called after `begin_step`. If two steps have equal
      keys and alike StepPlans, `plan` does the same operations on the same memory in both, so that
      one captured forward serves both. None, or a function that returns None: `plan` depends on
      data or on random numbers, and forwards are not captured.
    """

    static_rows: bool = False
    may_wait: bool = False
    sliding_window: bool = False
    capture_key: Callable[[Any], tuple[object, ...] | None] | None = None


@dataclass
class CachePolicy:
    """A caching method; its knobs are its dataclass fields, one instance serves one run at a time.

    A policy makes two decisions: `begin_step` chooses the rows that enter a step, `plan` which of
    them a layer recomputes. All other methods and attributes have defaults. A policy that only
    chooses within layers may be stacked on the policies named by `stackable_on`. `attention` are
    the kinds of attention that it is made for (ModelInfo.attention).
    """

    name: ClassVar[str]
    title: ClassVar[str]
    paper: ClassVar[str] = ""
    summary: ClassVar[str] = ""
    stackable_on: ClassVar[tuple[str, ...]] = ()
    attention: ClassVar[tuple[str, ...]] = ("full",)
    reasons: ClassVar[tuple[Reason, ...]] = GENERIC
    speedups = Speedups()

    def __post_init__(self) -> None:
        check_fields(self, f"{self.name}.")

    # The two decisions.

    def begin_step(self, view: StepView) -> StepPlan:
        """Choose the rows that enter the network in this step; they include `view.logit_rows`."""
        full = view.step == 0 or self._recomputes_all_rows
        return StepPlan(view.rows_in_sight, kind="full" if full else "partial")

    def plan(self, layer: int, probe: LayerProbe) -> LayerPlan:
        """Choose the rows that a layer recomputes; a site with rows left out must be in `sites`.

        In place of `attn` and `ffn`, `sites` may name their sum, `branch`.
        """
        return LayerPlan()

    # State.

    def check(self, block_length: int, known_order: bool) -> None:
        """Raise ValueError naming a knob that does not go with the settings of a run.

        `known_order`: the unmasker knows before the forward which tokens a step commits.
        """

    def prepare(self, context: PolicyContext) -> None:
        """Derive what the policy needs from the checkpoint; called once, before `sites`."""

    def sites(self, run: RunInfo) -> tuple[Site, ...]:
        """Activations that the store keeps."""
        return ()

    def start(self, run: RunInfo) -> None:
        """Initialise the state of a run; called before its first step, also when it is rerun."""
        self.run = run

    def end_step(self, view: StepView, confidence: Tensor, committed: Tensor) -> None:
        """Called after the commit; `confidence` and `committed` [B, n] belong to `view.needs`."""

    # Which logits a step gives and what it can commit.

    @property
    def follows_order(self) -> bool:
        """Whether a step computes logits only at the positions of `StepView.order`."""
        return False

    def confidence_mask(
        self, step: int, masked: np.ndarray, undecided: np.ndarray, block: slice
    ) -> np.ndarray | None:
        """`undecided` positions [B, T] whose confidence `end_step` gets; None: those of the block.

        Their rows must enter the step. Positions of the block that are left out cannot be
        committed in this step; at least one must remain in each sequence's open block.
        """
        return None

    def logits_end(self, masked: np.ndarray, block: slice) -> np.ndarray:
        """Position [B] up to which a step can give logits of all masks from the block's first on.

        Used by unmaskers that commit beyond the block; `masked` is [B, T] bool. Block-causal
        attention ends it with the block.
        """
        return np.full(len(masked), block.stop if self.run.info.block_causal else masked.shape[1])

    def rows_to_fill(self, block: slice) -> slice | None:
        """Rows before a block that a step of its own computes before the block is decoded.

        Called once a block; None: no such step. Only for block-causal attention.
        """
        return None

    @property
    def shares_rows(self) -> bool:
        """Whether the rows of a step follow from all sequences of a batch, which is then split."""
        return False

    def can_commit(self, count: int) -> bool:
        """Whether every step allows `count` tokens of a block to be committed if so many remain."""
        return True

    def check_commits(self, count: int, commits: str) -> None:
        """Raise ValueError naming a knob unless `can_commit(count)`.

        `commits` says which token the unmasker commits that a step has to allow.
        """

    def guides(self, step: int) -> bool:
        """Whether a step computes the unconditional branch of classifier-free guidance."""
        return True

    # What the page and the tests read.

    def most_fills(self, grid: BlockGrid) -> int:
        """The most steps of a run that `rows_to_fill` adds."""
        return 0

    @classmethod
    def exact(cls) -> CachePolicy | None:
        """A policy whose settings must give the results of no cache; None if there are none."""
        return None

    @classmethod
    def fitted_knobs(cls, profile: Callable[[str], DriftProfile]) -> list[dict[str, Scalar]]:
        """Settings to search that follow from recorded drifts; none if the knobs do not.

        `profile` gives the drifts of a quantity (`engine.core.events.QUANTITIES`) in exact runs,
        from step to step. Each item changes some knobs, by their names without the method's.
        """
        return []

    def planned(self, view: StepView, plan: StepPlan) -> Kinds:
        """Kinds planned for the prompt, the block and the rest in the step that began with `plan`.

        The default follows from `plan` alone, and promises `full` for the rows of a slice only if
        the policy leaves all layer plans to the base class.
        """
        if not isinstance(plan.rows, slice):
            return (plan.kind,) * 3
        prompt, block, rest = (
            kind if self._recomputes_all_rows or kind == "reuse" else "partial"
            for kind in window_kinds(view.regions, plan.rows, "reuse")
        )
        return prompt, block, rest

    def data_rows(self) -> DataRows | None:
        """What decides a number of rows, if it is not the settings alone; None: the settings."""
        return None

    def rows_by_order(self, info: ModelInfo, block_length: int) -> bool:
        """Whether the order in which tokens are committed decides on the number of rows of a step.

        Estimates without a model then assume an order from left to right.
        """
        return False

    def with_assumed_share(self, share: float) -> CachePolicy:
        """This policy if its `data_rows` were the share `share`; it then reads no values."""
        return self

    def facts(self) -> dict[str, list[float]]:
        """Quantities derived for each layer before the run, by name; finite numbers."""
        return {}

    @property
    def _recomputes_all_rows(self) -> bool:
        """Whether every layer recomputes every row that enters it."""
        return type(self).plan is CachePolicy.plan
