"""LLaDA-V as released: the number of tokens of a step, several stops, rows without newlines."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from engine.cache.base import StepView
from engine.generate import end_of_text
from engine.generate.loop import Denoiser
from engine.unmask.base import Candidates, Commit
from engine.unmask.methods.factor import Factor


class LastRankFactor(Factor):
    """The factor rule takes the last rank of all masks fed if every better one passes.

    Masks of later blocks are ranks too, without a confidence, so that it strikes in the last block
    only: its last two masks always go together.
    """

    def commit(self, candidates: Candidates, view: StepView) -> Commit:
        found = super().commit(candidates, view)
        ranks = int(view.masked[:, view.block.start :].sum())
        count = int(found.mask.sum())
        if count != ranks - 1:
            return found
        return Commit(
            candidates.top(torch.full((1,), ranks, device=candidates.ids.device)), candidates.ids
        )


class ListedStops(Denoiser):
    """Of several stops the first one of the list that occurs counts, then only the list's first."""

    def _find_stops(self) -> np.ndarray:
        run, known = self.run, self._canvas.stop < self.run.length
        answer = slice(run.prompt_length, run.prompt_length + run.gen_length)
        for stop in self.job.stops[:1] if known.any() else self.job.stops:
            found = end_of_text.find_stops(self.ids[:, answer], self.masked[:, answer], [stop])
            if (found < run.gen_length).all():
                return run.prompt_length + found
        return self._canvas.stop


def without_newline(rows: Tensor) -> Tensor:
    """The rows of a padded image as the evaluation hands them over, as one tensor of crops."""
    return rows[:-1]
