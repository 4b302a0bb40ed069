"""ForwardNotes: the plans and outputs of a forward's layers, kept for a recorder."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from torch import Tensor

from engine.cache.layer_probe import LayerPlan
from engine.core.rows import Rows

K = TypeVar("K", bound=Hashable)


class _Place(NamedTuple):
    """Stands for a tensor in SavedNotes: its number among the tensors."""

    number: int


@dataclass(frozen=True)
class SavedNotes:
    """The contents of ForwardNotes, with a `_Place` for each tensor."""

    plans: list[dict[str, Any]]
    outputs: dict[tuple[str, int], Any]
    query_rows: dict[int, Any]


@dataclass(frozen=True)
class ForwardNotes:
    """What the layers of a forward decided and computed, filled while it runs.

    A captured forward runs none of the code that fills the notes when it is replayed. `save` and
    `restore` give its notes the tensors that the replay has computed.

    Attributes:
        plans: the plan of each layer, in their order.
        outputs: (quantity, layer) -> [B, n, ...]; `k`, `v` and `q0` (the query of head 0) of the
            call with the most rows, `attn` and `ffn` of the last call, and `experts` of that too,
            the experts of each row.
        query_rows: layer -> the rows of its `q0`.
    """

    plans: list[LayerPlan] = field(default_factory=list)
    outputs: dict[tuple[str, int], Tensor] = field(default_factory=dict)
    query_rows: dict[int, Rows] = field(default_factory=dict)

    def clear(self) -> None:
        """Release everything noted."""
        self.plans.clear()
        self.outputs.clear()
        self.query_rows.clear()

    def save(self) -> tuple[SavedNotes, list[Tensor]]:
        """The notes without their tensors, and the tensors."""
        tensors: list[Tensor] = []
        plans = [_without_tensors(vars(plan), tensors) for plan in self.plans]
        outputs = _without_tensors(self.outputs, tensors)
        return SavedNotes(plans, outputs, _without_tensors(self.query_rows, tensors)), tensors

    def restore(self, saved: SavedNotes, tensors: Sequence[Tensor]) -> None:
        """Replace the notes by saved ones with new `tensors`, in the order of `save`."""
        self.clear()
        self.plans.extend(LayerPlan(**_with_tensors(plan, tensors)) for plan in saved.plans)
        self.outputs.update(_with_tensors(saved.outputs, tensors))
        self.query_rows.update(_with_tensors(saved.query_rows, tensors))


def _without_tensors(values: Mapping[K, Any], tensors: list[Tensor]) -> dict[K, Any]:
    """`values` with a place for each tensor, which is appended to `tensors`."""
    found: dict[K, Any] = {}
    for key, value in values.items():
        found[key] = value
        if isinstance(value, Tensor):
            found[key] = _Place(len(tensors))
            tensors.append(value)
    return found


def _with_tensors(values: Mapping[K, Any], tensors: Sequence[Tensor]) -> dict[K, Any]:
    """The inverse of `_without_tensors`."""
    return {
        key: tensors[value.number] if isinstance(value, _Place) else value
        for key, value in values.items()
    }
