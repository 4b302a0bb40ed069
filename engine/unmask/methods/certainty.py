"""Certainty prior: confidence weighted by the density of known tokens nearby (d2Cache)."""

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
    summary = "A fixed number of tokens a step, the most confident near known tokens first."
    scheduled = True

    sigma: float = knob(
        10.0, 0.5, 1000.0, label="Sigma",
        help="How far a known token raises the rank of masks near it, in positions; large values "
        "rank by confidence alone.",
    )  # fmt: skip

    def commit(self, candidates: Candidates, view: StepView) -> Commit:
        """Commit the best by confidence x density, as many as the schedule requires."""
        start = view.run.prompt_length
        weight = density(~view.masked[:, start:], self.sigma).gather(1, view.needs - start)
        scored = candidates.score > 0  # padding and ends that are ranked last keep their score
        score = torch.where(scored, candidates.score * weight, candidates.score)
        score = score.masked_fill(~view.real, -torch.inf)
        return self.commit_scheduled(replace(candidates, score=score), view)
