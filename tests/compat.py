"""Defects of public implementations, reproduced so that their recorded runs can be compared."""

import torch

from engine.events import StepEvent
from engine.flops import Ledger
from engine.loop import Denoiser


class IdleCallDenoiser(Denoiser):
    """Fast-dLLM's cached loops run one cached forward a block even if the full one finished it.

    `idle_calls` are the call numbers of such forwards; nothing is committed in them.
    """

    def __init__(self, job) -> None:
        super().__init__(job)
        self.idle_calls: list[int] = []

    def step(self, block: slice, block_index: int, block_step: int) -> StepEvent:
        event = super().step(block, block_index, block_step)
        if block_step == 0 and not self.open_rows(block).any():
            self._idle(block, block_index)
        return event

    @torch.inference_mode()
    def _idle(self, block: slice, block_index: int) -> None:
        view = self._view(block, block_index, 1)
        self._forward(self.branches[0], view, self.canvas, self.job.recorder, Ledger(self.run.info))
        self.idle_calls.append(self.step_index)
        self.step_index += 1
