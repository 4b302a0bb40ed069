"""Aggregates: what the recordings of many runs of one setting have in common, in bounded memory.

Each run gives one value to every cell: the mean over its rows, pairs of steps or probes. A cell has
the mean and the standard deviation of these values over the runs that have data there.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from engine.config.spec import RunSpec
from engine.core.drift_codes import DRIFTS, NOT_EVALUATED
from engine.core.events import GUIDED, QUANTITIES, SITES
from engine.trace.trace import Trace

KINDS = ("k", "v")  # of the similarity
PARTS = ("prompt", "answer")
MAX_DISTANCE = 256  # steps between two that are compared; pairs farther apart are left out
MAX_TOKENS = 256  # of a step; steps with more are counted here
MAX_LAYERS = 256
THRESHOLDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
SHARES = (0.25, 0.5, 0.75)  # quantiles of the drift
SCALARS = ("tv", "flips", "tokens")
CODES = NOT_EVALUATED  # number of codes that stand for a drift
_LAST_BELOW = np.searchsorted(DRIFTS[:CODES], THRESHOLDS, "right") - 1


class Moments:
    """Mean and standard deviation of arrays of one shape, cell by cell; NaN is no data."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.count = np.zeros(shape, np.int64)
        self.mean = np.zeros(shape)
        self.squares = np.zeros(shape)  # sum of squared distances from the mean

    def add(self, values: np.ndarray) -> None:
        """Add the array of one run."""
        known = ~np.isnan(values)
        self.count += known
        away = np.where(known, values - self.mean, 0)
        self.mean += away / np.maximum(self.count, 1)
        self.squares += away * np.where(known, values - self.mean, 0)

    def arrays(self, name: str) -> dict[str, np.ndarray]:
        """The state by names that begin with `name`."""
        parts = {"count": self.count, "mean": self.mean, "squares": self.squares}
        return {f"{name}_{part}": array for part, array in parts.items()}

    def means(self) -> np.ndarray:
        """The means; NaN without data."""
        return np.where(self.count > 0, self.mean, np.nan)

    def deviations(self) -> np.ndarray:
        """The standard deviations of the sample; NaN for fewer than two runs."""
        return np.where(
            self.count > 1, np.sqrt(self.squares / np.maximum(self.count - 1, 1)), np.nan
        )


class Aggregates:
    """The recordings of runs of one setting, added run by run.

    `keys` names the runs that were added. Memory does not grow with their number but for the keys:
    histograms of drift codes and moments of a model with L layers.
    """

    def __init__(self) -> None:
        self.keys: set[str] = set()
        self.layers = 0
        self._moments: dict[str, Moments] = {}
        self._codes = np.zeros((len(QUANTITIES), 0, CODES), np.int64)
        self._committed = np.zeros(MAX_TOKENS + 1, np.int64)  # steps by tokens committed
        self._accepted = np.zeros(MAX_TOKENS + 1, np.int64)  # guided steps by tokens accepted

    @property
    def runs(self) -> int:
        """Number of runs added."""
        return len(self.keys)

    def add(self, key: str, trace: Trace) -> None:
        """Add a finished, recorded run; one whose key was added before is left out.

        Raises ValueError if its model has another number of layers than that of the others.
        """
        if key in self.keys:
            return
        self._start(trace.layers)
        arrays = trace.arrays()
        histogram = _code_histogram(arrays, self.layers)
        own = _own_commits(arrays, trace.steps)[~trace.commit_calls]
        values = {
            "drift": _histogram_means(histogram), "above": _shares_above(histogram),
            "similarity": _similarity(trace), "error": _errors(arrays, self.layers),
            "scalars": _scalars(arrays, own), "experts": _expert_changes(arrays, self.layers),
        }  # fmt: skip
        self._codes += histogram  # from here on nothing fails
        for name, moments in self._moments.items():
            moments.add(values[name])
        self._committed += np.bincount(np.minimum(own, MAX_TOKENS), minlength=MAX_TOKENS + 1)
        counts = arrays["guided_count"]
        drafts = counts[:, [GUIDED.index("drafted"), GUIDED.index("fell_back")]].any(1)
        guided = counts[drafts, GUIDED.index("accepted")]
        self._accepted += np.bincount(np.minimum(guided, MAX_TOKENS), minlength=MAX_TOKENS + 1)
        self.keys.add(key)

    def to_dict(self) -> dict[str, Any]:
        """The aggregates as plain data, None where there is none.

        - `runs`, `layers`, and the names of the axes: `quantities`, `sites`, `kinds`, `parts`,
          `thresholds`, `shares`;
        - `drift` [Q, L]: 1 - cosine of a row's new value and its last one, mean over the rows of a
          run; `quantiles` [Q, L, shares]: of the rows of all runs together;
        - `above` [Q, L, thresholds]: share of the rows whose drift is above a threshold;
        - `similarity` [2, L, 2, D]: 1 - cosine of K and V of two steps, of prompt and answer, for
          the distances of 1 to D steps;
        - `experts` [L]: a row's experts that are others than when it was last computed, mean over
          the rows of a run; no data in a layer without experts;
        - `error` [sites, L]: 1 - cosine of the values used and the exact ones in probed steps;
        - `tv`, `flips` (share of predictions whose best token changed) in these steps, and
          `tokens` committed in a step;
        - `committed`, `accepted`: numbers of steps by tokens committed in the step, and by tokens
          that the guider accepted, from 0 on. Commit calls (`Trace.commit_calls`) do not count.

        All but the last two and `quantiles` are {"mean", "sd", "runs"} over runs.
        """
        out: dict[str, Any] = {
            "runs": self.runs, "layers": self.layers, "quantities": list(QUANTITIES),
            "sites": list(SITES), "kinds": list(KINDS), "parts": list(PARTS),
            "thresholds": list(THRESHOLDS), "shares": list(SHARES),
            "quantiles": _plain(_quantiles(self._codes)),
            "committed": _without_tail(self._committed), "accepted": _without_tail(self._accepted),
        }  # fmt: skip
        for name, moments in self._moments.items():
            means, spreads, counts = moments.means(), moments.deviations(), moments.count
            if name == "scalars":
                for place, scalar in enumerate(SCALARS):
                    out[scalar] = _described(means[place], spreads[place], counts[place])
                continue
            if name == "similarity":
                reach = int(np.flatnonzero(counts.any((0, 1, 2))).max(initial=-1)) + 1
                means, spreads, counts = (a[..., :reach] for a in (means, spreads, counts))
            out[name] = _described(means, spreads, counts)
        return out

    def to_bytes(self) -> bytes:
        """The state as an .npz file, from which `from_bytes` continues."""
        arrays: dict[str, np.ndarray] = {
            "keys": np.array(sorted(self.keys), np.str_), "codes": self._codes,
            "committed": self._committed, "accepted": self._accepted,
        }  # fmt: skip
        for name, moments in self._moments.items():
            arrays |= moments.arrays(name)
        buffer = io.BytesIO()
        np.savez_compressed(buffer, allow_pickle=False, **arrays)
        return buffer.getvalue()

    @classmethod
    def from_bytes(cls, data: bytes) -> Aggregates:
        """The aggregates of a file of `to_bytes`. Raises ValueError if it is damaged."""
        try:
            with np.load(io.BytesIO(data), allow_pickle=False) as file:
                return cls._read({name: file[name] for name in file.files})
        except Exception as error:  # zipfile, numpy and zlib raise many kinds
            raise ValueError(f"aggregates: the file is damaged ({error})") from None

    @classmethod
    def _read(cls, arrays: Mapping[str, np.ndarray]) -> Aggregates:
        found = cls()
        found.keys = set(arrays["keys"].tolist())
        found._start(arrays["codes"].shape[1])
        own = {"codes": found._codes, "committed": found._committed, "accepted": found._accepted}
        for name, moments in found._moments.items():
            own |= moments.arrays(name)
        for name, array in own.items():
            if name in arrays or not name.startswith("experts_"):  # which older files lack
                array[...] = arrays[name]
        return found

    def _start(self, layers: int) -> None:
        """Make the arrays for a model with so many layers."""
        if self.layers == layers and self._moments:
            return
        if self._moments or not 0 <= layers <= MAX_LAYERS:
            raise ValueError(
                f"aggregates: the run has {layers} layers and the others {self.layers}; record "
                "the runs of one model"
            )
        self.layers, kinds = layers, len(QUANTITIES)
        self._codes = np.zeros((kinds, layers, CODES), np.int64)
        shapes = {
            "drift": (kinds, layers), "above": (kinds, layers, len(THRESHOLDS)),
            "similarity": (len(KINDS), layers, len(PARTS), MAX_DISTANCE),
            "error": (len(SITES), layers), "scalars": (len(SCALARS),), "experts": (layers,),
        }  # fmt: skip
        self._moments = {name: Moments(shape) for name, shape in shapes.items()}


def _ratio(part: Any, whole: Any) -> np.ndarray:
    """Quotients; NaN where the denominator is 0."""
    below = np.asarray(whole, float)
    return np.where(below > 0, part / np.where(below > 0, below, 1), np.nan)


def _code_histogram(arrays: Mapping[str, np.ndarray], layers: int) -> np.ndarray:
    """Numbers of cells by quantity, layer and drift code, int64 [Q, L, CODES]."""
    out = np.zeros((len(QUANTITIES), layers, CODES), np.int64)
    drift = arrays["drift"]
    if not drift.size:
        return out
    for i, layer in enumerate(arrays["recorded_layer"]):
        for o, quantity in enumerate(arrays["recorded_quantity"]):
            found = np.bincount(drift[:, i, o].ravel(), minlength=CODES + 1)
            out[quantity, layer] = found[:CODES]
    return out


def _histogram_means(histogram: np.ndarray) -> np.ndarray:
    """Mean drift [Q, L]."""
    return _ratio(histogram @ DRIFTS[:CODES], histogram.sum(-1))


def _shares_above(histogram: np.ndarray) -> np.ndarray:
    """Shares [Q, L, thresholds] of the cells whose drift is above each of THRESHOLDS."""
    below = histogram.cumsum(-1)[..., _LAST_BELOW]
    total = histogram.sum(-1, keepdims=True)
    return _ratio(total - below, np.broadcast_to(total, below.shape))


def _quantiles(histogram: np.ndarray) -> np.ndarray:
    """The drifts [Q, L, SHARES] that these shares of the cells do not exceed."""
    total = histogram.sum(-1)
    sums = histogram.cumsum(-1)
    out = np.full((*total.shape, len(SHARES)), np.nan)
    for place in np.argwhere(total):
        q, layer = place
        wanted = np.ceil(np.array(SHARES) * total[q, layer])
        out[q, layer] = DRIFTS[np.searchsorted(sums[q, layer], np.maximum(wanted, 1))]
    return out


def _similarity(trace: Trace) -> np.ndarray:
    """Mean 1 - cosine [2, L, PARTS, MAX_DISTANCE] of the pairs of steps of each distance.

    The answer is the mean over its compared blocks, of which the first may share tokens of the
    prompt.
    """
    arrays = trace.arrays()
    out = np.full((len(KINDS), trace.layers, len(PARTS), MAX_DISTANCE), np.nan)
    codes, steps = arrays["similarity"], arrays["similarity_step"]
    if not codes.size:
        return out
    later, earlier = np.tril_indices(len(steps), -1)
    pairs = later * (later + 1) // 2 + earlier
    apart = steps[later] - steps[earlier]
    near = apart <= MAX_DISTANCE
    pairs, apart = pairs[near], apart[near]
    size = RunSpec.from_dict(trace.meta["spec"]).block_length
    of_prompt = arrays["similarity_group"][:, 0] < trace.prompt_length - trace.shared(size)
    for i, layer in enumerate(arrays["recorded_layer"]):
        for kind in range(len(KINDS)):
            for part, groups in enumerate((of_prompt, ~of_prompt)):
                far = DRIFTS[codes[pairs, kind, i][:, groups]]
                known = ~np.isnan(far)
                sums = _by_distance(apart, np.where(known, far, 0).sum(1))
                out[kind, layer, part] = _ratio(sums, _by_distance(apart, known.sum(1)))
    return out


def _by_distance(apart: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Sums of values by distance, float64 [MAX_DISTANCE]."""
    return np.bincount(apart - 1, values, MAX_DISTANCE)


def _errors(arrays: Mapping[str, np.ndarray], layers: int) -> np.ndarray:
    """Mean 1 - cosine [sites, L] of the values used and the exact ones over the probed rows."""
    out = np.full((len(SITES), layers), np.nan)
    error, quantities = arrays["probe_error"], arrays["recorded_quantity"]
    if not error.size:
        return out
    for i, layer in enumerate(arrays["recorded_layer"]):
        for f, site in enumerate(quantities[quantities < len(SITES)]):
            known = np.bincount(error[:, i, f].ravel(), minlength=CODES + 1)[:CODES]
            out[site, layer] = _ratio(known @ DRIFTS[:CODES], known.sum())
    return out


def _expert_changes(arrays: Mapping[str, np.ndarray], layers: int) -> np.ndarray:
    """Mean number of a row's changed experts [L], over the rows computed again."""
    out, changes = np.full(layers, np.nan), arrays["expert_changes"]
    for i, layer in enumerate(arrays["recorded_layer"] if changes.size else ()):
        known = np.bincount(changes[:, i].ravel(), minlength=NOT_EVALUATED + 1)[:NOT_EVALUATED]
        out[layer] = _ratio(known @ np.arange(NOT_EVALUATED), known.sum())
    return out


def _own_commits(arrays: Mapping[str, np.ndarray], steps: int) -> np.ndarray:
    """Tokens committed by each step [S], without those filled in after the end of text."""
    own = np.isfinite(arrays["commit_confidence"])
    return np.bincount(arrays["commit_step"][own], minlength=steps)


def _scalars(arrays: Mapping[str, np.ndarray], own: np.ndarray) -> np.ndarray:
    """The values of SCALARS."""
    top, count = arrays["probe_top"], len(arrays["probe_tv"])
    flips = (top[:, 0] != top[:, 1]).sum()
    tv = arrays["probe_tv"].astype(float).sum()
    return np.array([_ratio(tv, count), _ratio(flips, count), _ratio(own.sum(), len(own))])


def _described(means: np.ndarray, spreads: np.ndarray, counts: np.ndarray) -> dict[str, Any]:
    return {"mean": _plain(means), "sd": _plain(spreads), "runs": counts.tolist()}


def _plain(array: np.ndarray) -> Any:
    """Nested lists of numbers of six digits, None for NaN."""
    rounded: Callable[[Any], Any] = np.vectorize(
        lambda one: None if np.isnan(one) else float(f"{one:.6g}"), otypes=[object]
    )
    return rounded(array).tolist() if array.size else array.tolist()


def _without_tail(counts: np.ndarray) -> list[int]:
    """Counts up to the last one above 0."""
    found: list[int] = counts[: int(np.flatnonzero(counts).max(initial=-1)) + 1].tolist()
    return found
