"""Measure how the time of a step depends on dLLM-Cache's recompute ratio (figure 6 of its paper).

    python -m engine sweep --rounds 5

Decodes the page's default problem with dLLM-Cache at every ratio rho and response interval K_r,
all settings in turn within a round, after a warm-up round. The time of a setting is that of a run
over the positions of its answer, padding included, as the median over the rounds. For each K_r,
least squares fit

    time = a0 + a1 * [rho > 0] + b * rho   (milliseconds)

where a1 is the fixed cost of selecting rows, however few are recomputed. Prints one JSON document;
`python -m engine tables` writes it into assets/results, for the page's Time view.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from statistics import median
from typing import Any

import numpy as np
import torch

from engine.bench.trial import interleaved, run_once
from engine.config.spec import RunSpec
from engine.core.command_line import command_parser, failure, positive
from engine.core.files import ASSETS
from engine.models.loading.families import embedded_models
from engine.serve import environment
from engine.serve.model_pool import ModelPool
from engine.serve.session import Session

RATIOS = (0.0, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0)
INTERVALS = (2, 4, 8, 16)
TERMS = ("a0", "a1", "b")


def settings(base: RunSpec) -> dict[tuple[float, int], RunSpec]:
    """dLLM-Cache at every ratio and response interval, with its other knobs at their defaults."""
    return {
        (ratio, interval): replace(
            base,
            cache="dllm_cache",
            knobs={
                "dllm_cache.recompute_ratio": ratio,
                "dllm_cache.response_interval": interval,
            },
        )
        for ratio in RATIOS
        for interval in INTERVALS
    }


def fit(points: Sequence[dict[str, Any]]) -> dict[str, float]:
    """The TERMS in ms by least squares, and `r2`, the share of variance explained.

    `points` have `rho` and `tpot_ms` and belong to one response interval.
    """
    rho = np.array([point["rho"] for point in points])
    tpot = np.array([point["tpot_ms"] for point in points])
    terms = np.stack((np.ones_like(rho), rho > 0, rho), 1)
    found = np.linalg.lstsq(terms, tpot, rcond=None)[0]
    unexplained = ((tpot - terms @ found) ** 2).sum() / ((tpot - tpot.mean()) ** 2).sum()
    return dict(zip(TERMS, found.tolist(), strict=True)) | {"r2": float(1 - unexplained)}


def measure(rounds: int) -> dict[str, Any]:
    """Time all settings in turn, `rounds` times after a warm-up round.

    Returns `points` (`tpot_ms` per position with its range, and the answer, by `rho` and
    `interval`), `fits` by interval, and the conditions.
    """
    folders = embedded_models(ASSETS)
    session = Session(folders)
    base = session.default_race().a
    model = ModelPool(folders).load(base)
    works = {
        f"{rho} {interval}": partial(run_once, model, spec)
        for (rho, interval), spec in settings(base).items()
    }
    points = []
    for name, (_, *events) in interleaved(works, rounds + 1).items():
        rho, interval = name.split()
        tpot = [event.metrics["total_ms"] / event.metrics["positions"] for event in events]
        points.append(
            {"rho": float(rho), "interval": int(interval), "tpot_ms": round(median(tpot), 4)}
            | {"low_ms": round(min(tpot), 4), "high_ms": round(max(tpot), 4)}
            | {"answer": events[0].texts[0]}
        )
    return {
        "model": base.model, "gen_length": base.gen_length, "rounds": rounds,
        "prompt_tokens": session.plan(base)["prompt_tokens"],
        "environment": environment.describe(base, model.digest),
        "fits": [
            {"interval": interval} | fit([p for p in points if p["interval"] == interval])
            for interval in INTERVALS
        ],
        "points": points,
    }  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command; `arguments` default to those of the process."""
    parser = command_parser("sweep", __doc__, alone=True)
    parser.add_argument("--rounds", type=positive, default=5, help="timed runs of each setting")
    args = parser.parse_args(arguments)
    torch.set_num_threads(1)
    try:
        print(json.dumps(measure(args.rounds)))
    except ValueError as error:
        raise failure(error, args) from None
