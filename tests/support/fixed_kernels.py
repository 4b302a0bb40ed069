"""Kernels with fixed routines, in place of those that a machine would choose."""

from __future__ import annotations

import torch

from engine.models.kernels.choice import LAYOUTS, ROUTINES, TORCH, Kernels


class FixedKernels(Kernels):
    """One routine for all operations that have it, torch's own for the others."""

    def __init__(self, routine: str) -> None:
        super().__init__()
        self.fixed = routine

    def routine(
        self, operation: str, dtype: torch.dtype, rows: int, *sizes: int, copies: bool = True
    ) -> str:
        """The fixed routine if the operation has it and the weights may be copied for it."""
        refused = self.fixed not in ROUTINES[operation] or (self.fixed in LAYOUTS and not copies)
        return TORCH if refused else self.fixed
