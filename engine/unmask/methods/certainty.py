"""Certainty prior: confidence weighed by how much around a position is known (d2Cache)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from engine.cache.base import StepView
from engine.cache.calibration.density import density
from engine.config.knobs import knob
from engine.unmask.base import Candidates, Commit, Unmasker


@dataclass
class Certainty(Unmasker):
    """LLaDA's schedule, ranked by confidence times certainty density: nearly left to right."""

    name = "certainty"
    title = "Certainty prior"
    paper = "arXiv 2509.23094"
    summary = "A fixed number of tokens a step, the surest among known neighbours first."
    scheduled = True

    sigma: float = knob(
        10.0,
        0.5,
        1000.0,
        label="Sigma",
        help="How far, in positions, a known token reaches; large values rank by confidence alone.",
    )

    def commit(self, candidates: Candidates, view: StepView) -> Commit:
        """The best by confidence x density, as many as the step owes."""
        start = view.run.prompt_length
        weight = density(~view.masked[:, start:], self.sigma).gather(1, view.needs - start)
        score = (candidates.score * weight).masked_fill(~view.real, -torch.inf)
        return self.commit_owed(replace(candidates, score=score), view)
