"""sweep: what dLLM-Cache's ratio costs a step, measured; dLLM-Cache, figure 6.

    python -m engine sweep --rounds 5

Decodes the page's default problem by dLLM-Cache at every ratio rho and response interval K_r, all
settings in turn within a round, after a round that is thrown away; the time of an output token
(TPOT) of a setting is the median over the rounds. For each K_r, by least squares,

    TPOT = a0 + a1 * [rho > 0] + b * rho   (milliseconds)

so that a1 is what selection costs however few rows it renews: the fixed cost. Writes
assets/results/rho.json.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from engine.bench.trial import interleaved, run_once
from engine.config.spec import RunSpec
from engine.core.files import ASSETS
from engine.models.loading.families import embedded_models
from engine.serve import environment
from engine.serve.model_pool import ModelPool
from engine.serve.session import Session

RATIOS = (0.0, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0)
INTERVALS = (2, 4, 8, 16)
TERMS = ("a0", "a1", "b")


def settings(base: RunSpec) -> dict[tuple[float, int], RunSpec]:
    """dLLM-Cache at every ratio and response interval, its other knobs at their defaults."""
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
    """The terms in ms by least squares, and `r2`, the share of variance explained.

    `points`, of one response interval, hold `rho` and `tpot_ms`.
    """
    rho = np.array([point["rho"] for point in points])
    took = np.array([point["tpot_ms"] for point in points])
    terms = np.stack((np.ones_like(rho), rho > 0, rho), 1)
    found = np.linalg.lstsq(terms, took, rcond=None)[0]
    rest = ((took - terms @ found) ** 2).sum() / ((took - took.mean()) ** 2).sum()
    return dict(zip(TERMS, found.tolist(), strict=True)) | {"r2": float(1 - rest)}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; `arguments` default to those of the process."""
    parser = argparse.ArgumentParser(
        prog="python -m engine sweep",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=ASSETS / "results" / "rho.json")
    args = parser.parse_args(arguments)
    torch.set_num_threads(1)
    folders = embedded_models(ASSETS)
    session = Session(folders)
    base = session.default_race().a
    model = ModelPool(folders).load(base)
    works = {
        f"{rho} {every}": partial(run_once, model, spec)
        for (rho, every), spec in settings(base).items()
    }
    runs = interleaved(works, args.rounds + 1)
    points = []
    for name, (_, *events) in runs.items():
        rho, every = name.split()
        took = [event.metrics["total_ms"] / event.metrics["positions"] for event in events]
        points.append(
            {"rho": float(rho), "interval": int(every), "tpot_ms": round(median(took), 4)}
            | {"low_ms": round(min(took), 4), "high_ms": round(max(took), 4)}
            | {"answer": events[0].texts[0]}
        )
    document = {
        "model": base.model, "gen_length": base.gen_length, "rounds": args.rounds,
        "prompt_tokens": session.plan(base)["prompt_tokens"],
        "environment": environment.describe(base, model.digest),
        "fits": [
            {"interval": every} | fit([p for p in points if p["interval"] == every])
            for every in INTERVALS
        ],
        "points": points,
    }  # fmt: skip
    args.out.write_text(json.dumps(document, indent=1) + "\n", "utf-8")
    print(json.dumps(document["fits"]))
