"""Classifier-free guidance: the logits of a conditional and an unconditional branch combined."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from engine.cache.base import CachePolicy, StepView
from engine.cache.store import ActivationStore
from engine.generate.capture.forwards import CapturedForwards


@dataclass
class GuidanceBranch:
    """The policy, store and forwards of one branch; the branches share nothing."""

    policy: CachePolicy
    store: ActivationStore
    forwards: CapturedForwards


class ClassifierFreeGuidance:
    """Combines the logits of both branches.

    Guided logits are u + (scale + 1) (z - u) for conditional z and unconditional u, which is
    z + scale (z - u). If the policy skips the unconditional branch in some steps, these use the
    gap z - u of the last step that ran it (dLLM-Cache, Algorithm 4).
    """

    def __init__(self, scale: float, policy: CachePolicy) -> None:
        self._scale, self._policy = scale, policy
        self._gap: Tensor | None = None
        self._unconditional_steps = 0

    def runs_unconditional(self, step: int) -> bool:
        """Whether a step runs the unconditional branch."""
        return self._policy.guides(step)

    def nbytes(self) -> int:
        """Bytes of the gap that is kept between steps."""
        return 0 if self._gap is None else self._gap.nbytes

    def mix(self, view: StepView, z: Tensor, unconditional: Callable[[int], Tensor]) -> Tensor:
        """Guided logits [B, n, V] of `view.needs` from the conditional `z`.

        `unconditional` computes the other logits; its argument is the branch's own step number.
        """
        if not self.runs_unconditional(view.step):
            assert self._gap is not None, "the first step runs both branches"
            return z + self._scale * self._gap.gather(1, _index(view.needs, z))
        u = unconditional(self._unconditional_steps)
        self._unconditional_steps += 1
        if not self.runs_unconditional(view.step + 1):
            if self._gap is None:
                self._gap = z.new_zeros(z.shape[0], view.run.length, z.shape[2])
            self._gap.scatter_(1, _index(view.needs, z), z - u)
        return u + (self._scale + 1) * (z - u)


def _index(positions: Tensor, z: Tensor) -> Tensor:
    """Positions [B, n] as a gather index over logits [B, n, V]."""
    return positions[..., None].expand(-1, -1, z.shape[2])
