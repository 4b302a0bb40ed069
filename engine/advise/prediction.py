"""Predictions of a setting's time and of what it keeps, from exact runs and a narrow model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from engine.advise.narrow_model import NarrowModel, PlannedStep
from engine.advise.reuse_error import ReuseError
from engine.config.spec import RunSpec
from engine.core.events import SITES

LEAST_KEPT = 0.02  # a share of 0 has no logarithm


@dataclass(frozen=True)
class Prediction:
    """What a setting is expected to do.

    `gflops` [steps] of its steps and the mean `recomputed` share follow from the schedule, exactly
    for methods that recompute a set number of rows; so does `selections`, how often a layer chose
    some rows of a region. `error` is the mean error of the values it uses, summed over the steps.
    `time`, that of a run over plain decoding's, and the share `kept` are None before they are
    fitted.
    """

    gflops: np.ndarray
    recomputed: float
    selections: int
    error: float
    time: float | None = None
    kept: float | None = None

    @property
    def work(self) -> tuple[float, float, float]:
        """Steps, GFLOPs and selections of a run, by which its time is predicted."""
        return float(len(self.gflops)), float(self.gflops.sum()), float(self.selections)


def predict_steps(
    narrow: NarrowModel,
    scale: np.ndarray,
    errors: ReuseError,
    spec: RunSpec,
    tokens: int,
    steps: int,
) -> Prediction:
    """Predict the steps of a setting for a prompt of `tokens` tokens.

    `scale` [PARTS] is that of `flop_scale`, `steps` those of the run without a cache. Raises
    ValueError if the cache does not go with tokens committed by a schedule.
    """
    gflops, recomputed, selections, error = [], [], 0, 0.0
    ages: np.ndarray | None = None
    for step in narrow.run(spec, tokens, steps):
        ages = _ages(ages, step)
        error += errors.of_rows(ages, step.rows, tokens)
        selections += _selections(step, tokens)
        gflops.append(float((step.flops * scale).sum()) / 1e9)
        recomputed.append(step.recomputed)
    return Prediction(np.array(gflops), float(np.mean(recomputed)), selections, error)


def _ages(before: np.ndarray | None, step: PlannedStep) -> np.ndarray:
    """Steps since each value was computed, [layers, SITES, T] int32."""
    older = np.ones(step.rows.shape, np.int32) if before is None else before + 1
    return np.where(step.rows, 0, older).astype(np.int32)


def _selections(step: PlannedStep, tokens: int) -> int:
    """Layers that compute the feed-forward of some rows of a region, and not of others."""
    rows = step.rows[:, SITES.index("ffn")]
    shares = np.stack([part.mean(-1) for part in (rows[:, :tokens], rows[:, tokens:])])
    return int(((shares > 0) & (shares < 1)).any(0).sum())


def fit_times(measured: Sequence[tuple[tuple[float, float, float], float]]) -> np.ndarray:
    """Time of a step, a GFLOP and a selection, by least squares with no negative term, [3].

    `measured` are the work (`Prediction.work`) and the time of runs. Raises ValueError if there are
    none.
    """
    if not measured:
        raise ValueError("runs: there is no measured run to fit times to")
    work, times = np.array([w for w, _ in measured]), np.array([t for _, t in measured])
    used = list(range(work.shape[1]))
    while True:
        found = np.linalg.lstsq(work[:, used], times, rcond=None)[0]
        if (found >= 0).all():
            break
        used.pop(int(found.argmin()))
    rates = np.zeros(work.shape[1])
    rates[used] = found
    return rates


def fit_sensitivity(measured: Sequence[tuple[float, float]]) -> float:
    """How fast the kept share falls with the error: kept = exp(-sensitivity * error).

    `measured` are errors and kept shares of settings that were run; least squares in the logarithm.
    Without any error among them the sensitivity is 0.
    """
    rows = np.array(measured, float).reshape(-1, 2)
    error, lost = rows[:, 0], -np.log(np.clip(rows[:, 1], LEAST_KEPT, 1))
    weight = float((error * error).sum())
    return float((error * lost).sum()) / weight if weight else 0.0


def fitted(prediction: Prediction, rates: np.ndarray, sensitivity: float) -> Prediction:
    """The prediction with its time, by the `rates` of `fit_times`, and its kept share."""
    kept = float(np.exp(-sensitivity * prediction.error))
    return replace(prediction, time=float(rates @ prediction.work), kept=kept)


def rank_correlation(a: Sequence[float], b: Sequence[float]) -> float | None:
    """Spearman's rank correlation, ties at their mean rank.

    None if one does not vary, or of fewer than three, whose order is always the same or opposite.
    """
    x, y = _ranks(np.asarray(a, float)), _ranks(np.asarray(b, float))
    if len(x) < 3 or x.std() == 0 or y.std() == 0:
        return None
    return float(np.corrcoef(x, y)[0, 1])


def _ranks(values: np.ndarray) -> np.ndarray:
    """Ranks from 1; equal values share their mean rank."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = counts.cumsum()
    ranks: np.ndarray = (last - (counts - 1) / 2)[inverse]
    return ranks
