"""Classifier-free guidance: two branches' logits made one, the gap between them kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from engine.cache.base import CachePolicy, StepView
from engine.cache.store import ActivationStore
from engine.generate.captured_forward import CapturedForwards


@dataclass
class Branch:
    """A guidance branch: its own policy, store and captured forwards; nothing is shared."""

    policy: CachePolicy
    store: ActivationStore
    graphs: CapturedForwards


class Guide:
    """Mixes the branches' logits; keeps their gap where a policy computes it in some steps only.

    Guided logits are u + (scale + 1) (z - u) for conditional z and unconditional u, which is
    z + scale (z - u): a gap z - u of an earlier step can stand in (dLLM-Cache, Algorithm 4).
    """

    def __init__(self, scale: float, policy: CachePolicy) -> None:
        self._scale, self._policy = scale, policy
        self._gap: Tensor | None = None
        self.forwards = 0

    def due(self, step: int) -> bool:
        """Whether the unconditional branch is computed in a step."""
        return self._policy.guides(step)

    def mix(self, view: StepView, z: Tensor, unconditional: Callable[[int], Tensor]) -> Tensor:
        """Guided logits [B, n, V] of `view.needs` from conditional `z`.

        `unconditional` is called with the number of its forwards so far, its own clock.
        """
        if not self.due(view.step):
            assert self._gap is not None, "the first step is guided"
            return z + self._scale * self._gap.gather(1, _wide(view.needs, z))
        u = unconditional(self.forwards)
        self.forwards += 1
        if not self.due(view.step + 1):
            if self._gap is None:
                self._gap = z.new_zeros(z.shape[0], view.run.length, z.shape[2])
            self._gap.scatter_(1, _wide(view.needs, z), z - u)
        return u + (self._scale + 1) * (z - u)


def _wide(needs: Tensor, z: Tensor) -> Tensor:
    return needs[..., None].expand(-1, -1, z.shape[2])
