"""The memory of the runs of a race, from their plans."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple


class RaceMemory(NamedTuple):
    """Bytes that the runs of a race need beside the weights; `guider` of them are a guider's."""

    runs: int
    guider: int

    @classmethod
    def of(cls, plans: Collection[Mapping[str, Any]]) -> RaceMemory:
        """The memory of runs with these plans (`Session.plan`), whose bytes are known.

        Each run keeps its cache and all share a guider, while one of them computes a step.
        """
        guider = max(plan["guider_bytes"] or 0 for plan in plans)
        kept = sum(plan["kept_bytes"] for plan in plans)
        return cls(guider + kept + max(map(_step_bytes, plans)), guider)


def _step_bytes(plan: Mapping[str, Any]) -> int:
    """Bytes of a run that are free again after each step."""
    held: int = plan["weights_bytes"] + plan["kept_bytes"] + (plan["guider_bytes"] or 0)
    return plan["memory_bytes"] - held
