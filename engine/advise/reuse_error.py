"""ReuseError: how wrong a kept value is by its age, measured in exact runs.

Exact runs are recorded with the recorder's level `layers`. The similarity of K and V between pairs
of steps gives the error 1 - cosine of reusing a value for so many steps; the drifts from step to
step give how unevenly the rows of a layer move, which is what a method that chooses rows gains.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from engine.cache.calibration.drift_profile import DriftProfile, histogram
from engine.core.drift_codes import DRIFTS, NOT_EVALUATED
from engine.core.events import QUANTITIES, SITES
from engine.trace.trace import Trace

REGIONS = ("prompt", "answer")
SHARES = np.linspace(0, 1, 21)


@dataclass(frozen=True)
class ReuseError:
    """Errors of reuse of a model, averaged over exact runs.

    `errors` [layers, SITES, REGIONS, ages] float64: mean 1 - cosine of a value against the one so
    many steps earlier; age 0 is 0, and the last age stands for older values. Those of attention and
    feed-forward outputs are those of V, scaled by their drifts from step to step. `left` [layers,
    REGIONS, SHARES] float64: the share of the drift that remains if the share SHARES of the rows
    that drift most are recomputed.
    """

    errors: np.ndarray
    left: np.ndarray

    @property
    def layers(self) -> int:
        """Number of layers."""
        return len(self.errors)

    def of_rows(self, ages: np.ndarray, fresh: np.ndarray, prompt: int) -> float:
        """The mean error of the values that a step uses.

        `ages` [layers, SITES, T] int are the steps since each value was computed, `fresh` of the
        same shape marks those computed in this step, and the first `prompt` positions are the
        prompt. If a part of a region is computed in a step, it is taken to be the part that drifts
        most: the others count with the drift that remains.
        """
        total = 0.0
        for region, part in enumerate((slice(0, prompt), slice(prompt, None))):
            age = np.minimum(ages[..., part], self.errors.shape[-1] - 1)
            if not age.shape[-1]:
                continue
            table = self.errors[:, :, region]
            layers, sites = np.ogrid[: len(table), : table.shape[1]]
            errors = table[layers[..., None], sites[..., None], age]
            computed = fresh[..., part].mean(-1)
            total += float((errors * self._weight(region, computed)[..., None]).sum())
        return total / ages.size

    def _weight(self, region: int, computed: np.ndarray) -> np.ndarray:
        """Drift of a row left out over that of a mean row, by the share [layers, n] computed."""
        left = np.stack([
            np.interp(row, SHARES, curve)
            for row, curve in zip(computed, self.left[:, region], strict=True)
        ])  # fmt: skip
        outside = 1 - computed
        return np.where(outside > 0, left / np.maximum(outside, 1e-9), 0.0)


@dataclass(frozen=True)
class RunReuse:
    """What an exact run says of reuse, in a small part of the bytes of its trace.

    `sums` and `counts` [layers, 2, REGIONS, ages] float64: the errors of K and V of pairs of steps
    by age, summed, and their numbers. `moved` [layers, SITES] float64: mean drifts from step to
    step. `left` is that of ReuseError. `codes` [QUANTITIES, layers, NOT_EVALUATED] int64: numbers
    of drifts from step to step by their code.
    """

    sums: np.ndarray
    counts: np.ndarray
    moved: np.ndarray
    left: np.ndarray
    codes: np.ndarray

    @classmethod
    def of(cls, trace: Trace) -> RunReuse:
        """That of an exact run that was recorded at level `layers`, whole.

        Raises ValueError naming `record` if the trace has no drifts.
        """
        if not len(trace.arrays()["drift"]):
            raise ValueError("record: the exact runs have no drifts; record at the level layers")
        sums, counts = _sums_by_age(*_pairs(trace))
        return cls(sums, counts, _mean_drifts(trace), _drift_left(trace), _codes(trace))


def measure_reuse_error(runs: Sequence[RunReuse]) -> ReuseError:
    """The errors of reuse in exact runs."""
    by_age = _by_age([(one.sums, one.counts) for one in runs])
    moved = np.mean([one.moved for one in runs], axis=0)  # [layers, SITES]
    value = np.maximum(moved[:, SITES.index("v")], 1e-9)
    scale = moved[:, [SITES.index("attn"), SITES.index("ffn")]] / value[:, None]
    outputs = np.clip(by_age[:, 1:2] * scale[:, :, None, None], 0, 2)
    left = np.mean([one.left for one in runs], axis=0)
    return ReuseError(np.concatenate((by_age, outputs), 1), left)


def drift_profile(runs: Sequence[RunReuse], quantity: str) -> DriftProfile:
    """The drifts of a quantity from step to step in exact runs, as a profile of the rows."""
    codes = np.sum([one.codes[QUANTITIES.index(quantity)] for one in runs], axis=0)
    drifts = [np.repeat(DRIFTS[:NOT_EVALUATED], row) for row in codes]
    counts = np.stack([histogram(one) for one in drifts])
    return DriftProfile("none", quantity, counts, np.array([one.sum() for one in drifts]))


Pairs = tuple[np.ndarray, np.ndarray, np.ndarray]


def _pairs(trace: Trace) -> Pairs:
    """Ages [Y] of the pairs of steps, errors [Y, 2, layers, groups], and each group's region."""
    arrays = trace.arrays()
    steps = arrays["similarity_step"]
    later, earlier = np.tril_indices(len(steps))
    # The first block of a block model may begin with tokens of the prompt; it is the answer's.
    answer = trace.prompt_length - trace.shared(trace.meta["spec"]["block_length"])
    regions = (arrays["similarity_group"][:, 0] >= answer).astype(int)
    return steps[later] - steps[earlier], DRIFTS[arrays["similarity"]], regions


def _sums_by_age(
    ages: np.ndarray, errors: np.ndarray, regions: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Sums and numbers of the errors of `_pairs` by age, [layers, 2, REGIONS, ages] each.

    Pairs with a step that had not computed a group, as those of later blocks of a block model, have
    no error and do not count.
    """
    longest, layers = int(ages.max(initial=0)) + 1, errors.shape[2]
    sums = np.zeros((layers, 2, len(REGIONS), longest))
    counts = np.zeros_like(sums)
    for group, region in enumerate(regions):
        for layer, kind in np.ndindex(layers, 2):
            own = errors[:, kind, layer, group]
            known = ~np.isnan(own)
            counts[layer, kind, region] += np.bincount(ages[known], minlength=longest)
            sums[layer, kind, region] += np.bincount(ages[known], own[known], longest)
    return sums, counts


def _by_age(found: Sequence[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """Mean errors [layers, 2, REGIONS, ages] of K and V; ages without a pair are interpolated.

    `found` are the sums and the numbers of each run (`_sums_by_age`).
    """
    longest = max(own.shape[-1] for own, _ in found)
    sums = np.zeros((*found[0][0].shape[:-1], longest))
    counts = np.zeros_like(sums)
    for own, number in found:
        sums[..., : own.shape[-1]] += own
        counts[..., : own.shape[-1]] += number
    for cell in np.ndindex(sums.shape[:3]):
        places = np.flatnonzero(counts[cell])
        if len(places):  # none without a prompt
            means = sums[cell][places] / counts[cell][places]
            sums[cell] = np.interp(np.arange(longest), places, means)
    sums[..., 0] = 0
    return sums


def _mean_drifts(trace: Trace) -> np.ndarray:
    """Mean drift of each layer and site from step to step, [layers, SITES]."""
    codes = trace.arrays()["drift"][1:, :, : len(SITES)]
    found = np.zeros(codes.shape[1:3])
    for layer, site in np.ndindex(*found.shape):
        known = codes[:, layer, site]
        known = known[known != NOT_EVALUATED]
        if known.size:
            found[layer, site] = DRIFTS[known].mean()
    return found


def _codes(trace: Trace) -> np.ndarray:
    """See RunReuse.codes."""
    drift = trace.arrays()["drift"][1:]
    found = np.zeros((drift.shape[2], drift.shape[1], NOT_EVALUATED), np.int64)
    for quantity, layer in np.ndindex(*found.shape[:2]):
        counts = np.bincount(drift[:, layer, quantity].ravel(), minlength=NOT_EVALUATED + 1)
        found[quantity, layer] = counts[:NOT_EVALUATED]
    return found


def _drift_left(trace: Trace) -> np.ndarray:
    """See ReuseError.left; of the drifts of V."""
    arrays = trace.arrays()
    codes = arrays["drift"][1:, :, SITES.index("v")]
    prompt = int(arrays["prompt_mask"].sum())
    found = np.zeros((codes.shape[1], len(REGIONS), len(SHARES)))
    for layer, region in np.ndindex(*found.shape[:2]):
        part = slice(0, prompt) if region == 0 else slice(prompt, None)
        drifts = np.nan_to_num(DRIFTS[codes[:, layer, part]])
        rows = np.sort(drifts, -1).sum(0)  # the rows of each rank, over all steps
        below = np.concatenate(([0.0], rows.cumsum()))
        if below[-1]:
            ranks = np.linspace(0, 1, len(below))
            found[layer, region] = np.interp(1 - SHARES, ranks, below / below[-1])
    return found
