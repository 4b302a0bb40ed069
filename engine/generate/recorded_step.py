"""RecordedStep: the candidates of a recorded step, as they are under the same or other settings."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from engine.generate import end_of_text
from engine.trace.trace import Trace
from engine.unmask.base import Candidates, SamplingParams, Unmasker
from engine.unmask.proposals import filter_logits, propose

NO_CANDIDATES = "This run has no recorded candidates: press Record to see them."
OLD_TRACE = (
    "This trace is older than the recording of what each step proposed, which is needed where "
    "tokens or their order are drawn, filtered, or ranked by entropy. Run and record it again."
)
Draw = tuple[float, bool, float, int, bool]


class UnknownAnswerError(ValueError):
    """The recording does not tell what a step would have done; the message says why."""


class OldTraceError(UnknownAnswerError):
    """A trace from before version 5 does not hold what a question needs."""

    def __init__(self) -> None:
        super().__init__(OLD_TRACE)


class Sampling(NamedTuple):
    """How a run draws tokens and measures them: its temperature and the settings of its unmasker.

    `params` is None if tokens are measured on the model's own distribution.
    """

    temperature: float
    score: str
    params: SamplingParams | None

    @classmethod
    def of(cls, unmasker: Unmasker, temperature: float) -> Sampling:
        """The sampling of a run with this unmasker and temperature."""
        return cls(temperature, unmasker.score, unmasker.sampling_params)

    @property
    def draw(self) -> Draw | None:
        """Runs with the same value draw the same tokens; None: the most probable ones."""
        if self.temperature == 0:
            return None
        params = self.params or SamplingParams()
        filters = params.top_p, params.top_k, params.top_k_first
        return self.temperature, self.params is not None, *filters

    @property
    def measure(self) -> tuple[float, float, int, bool] | None:
        """Runs with the same value measure on the same distribution; None: the model's own."""
        params = self.params
        if params is None or (self.temperature == 0 and params.top_p >= 1 and not params.top_k):
            return None
        return self.temperature, params.top_p, params.top_k, params.top_k_first

    @property
    def alg_temp(self) -> float:
        """The temperature at which the order is drawn; 0: it is not drawn."""
        return 0.0 if self.params is None else self.params.alg_temp

    def ranks_as(self, other: Sampling) -> bool:
        """Whether both rank the same tokens by the same scores."""
        return (self.draw, self.measure, self.score, self.alg_temp) == (
            other.draw, other.measure, other.score, other.alg_temp,
        )  # fmt: skip


class KnownCandidates(NamedTuple):
    """Candidates [1, n] of a step under some settings.

    `unknown` are sentences that say what the recording does not tell, so that the candidates are
    not certain; `chance` [n, 2] float64 are bounds of the probability that each token is drawn.
    """

    candidates: Candidates
    unknown: tuple[str, ...]
    chance: np.ndarray


@dataclass(frozen=True)
class RecordedStep:
    """What a trace holds of the candidates of one step, by position, [n] or [n, K] each.

    `top_ids` and `top_probs` are the K most probable tokens, best first. The rest is as in
    core.events.Proposals; of a trace without proposals, what follows for a greedy step. `double`:
    the run computed in float64.
    """

    positions: np.ndarray
    top_ids: np.ndarray
    top_probs: np.ndarray
    ids: np.ndarray
    confidence: np.ndarray
    score: np.ndarray
    entropy: np.ndarray
    order: np.ndarray
    complete: bool
    double: bool

    @classmethod
    def of(cls, trace: Trace, step: int) -> RecordedStep:
        """Read a step of a trace; ValueError if it has no candidates or they do not fit."""
        arrays = trace.arrays()
        rows = np.flatnonzero(arrays["candidate_step"] == step)
        if not len(arrays["plan"]):
            raise ValueError(NO_CANDIDATES)
        top_ids, top_probs = arrays["candidate_id"][rows], arrays["candidate_prob"][rows]
        positions = arrays["candidate_position"][rows]
        if not len(rows) or top_probs.shape[1] < 2 or (np.diff(positions) <= 0).any():
            raise ValueError("trace: the candidates of this step cannot be read; export it again")
        complete = len(arrays["proposal_id"]) > 0
        columns = {
            "ids": top_ids[:, 0], "confidence": top_probs[:, 0], "score": top_probs[:, 0],
            "entropy": np.full(len(rows), np.nan, np.float32),
            "order": np.full(len(rows), -1, np.int32),
        }  # fmt: skip
        if complete:
            names = ("id", "confidence", "score", "entropy", "order")
            columns = dict(
                zip(columns, (arrays[f"proposal_{n}"][rows] for n in names), strict=True)
            )
        double = (
            trace.meta["spec"].get("dtype") == "float64"
            or trace.meta["model"].get("double_confidence") is True
        )
        return cls(positions, top_ids, top_probs, **columns, complete=complete, double=double)

    def only(self, wanted: np.ndarray) -> RecordedStep:
        """The step with the candidates at the positions of a mask [T] alone."""
        keep = wanted[self.positions]
        names = ("positions", "top_ids", "top_probs", "ids", "confidence", "score", "entropy",
                 "order")  # fmt: skip
        return replace(self, **{name: getattr(self, name)[keep] for name in names})

    def planned(self) -> np.ndarray:
        """The positions of the order that the step had planned, in that order."""
        known = np.flatnonzero(self.order >= 0)
        found: np.ndarray = self.positions[known[self.order[known].argsort()]]
        return found

    def candidates(
        self, own: Sampling, wanted: Sampling, stop_ids: tuple[int, ...], vocab: int
    ) -> KnownCandidates:
        """The candidates under `wanted`, of a run whose sampling was `own`.

        Stop tokens `stop_ids` are ranked last, unless the score is the recorded one. Raises
        OldTraceError if a trace without proposals does not suffice.
        """
        same = wanted.draw == own.draw
        if not self.complete and (own.draw or own.measure or own.alg_temp):
            raise OldTraceError
        unknown = [] if same or wanted.draw is None else [_undrawn(wanted.temperature)]
        ids = torch.from_numpy((self.ids if same else self.top_ids[:, 0]).astype(np.int64))[None]
        if same and wanted.ranks_as(own) and (self.complete or own.score == "confidence"):
            confidence, score = self._tensor(self.confidence), self._recorded_score(own)
            found = Candidates(ids, confidence, score)
        else:
            found, more = self._measured(ids, same, own, wanted)
            unknown += more
            if stop_ids:
                found = end_of_text.suppress_confidence(found, stop_ids)
        return KnownCandidates(found, tuple(unknown), self._chance(same, wanted, vocab))

    def _tensor(self, values: np.ndarray) -> Tensor:
        """Values [1, n] in the format that the run computed in."""
        kind = torch.float64 if self.double else torch.float32
        return torch.from_numpy(np.ascontiguousarray(values)).to(kind)[None]

    def _recorded_score(self, own: Sampling) -> Tensor:
        score = torch.from_numpy(np.ascontiguousarray(self.score, np.float64))[None]
        return score if own.alg_temp else score.to(self._tensor(self.confidence).dtype)

    def _measured(
        self, ids: Tensor, same: bool, own: Sampling, wanted: Sampling
    ) -> tuple[Candidates, list[str]]:
        """The candidates with scores computed from what is recorded, and what is not known."""
        unknown = []
        if wanted.alg_temp:
            unknown.append(
                "The order temperature draws the order at random. The order here is the most "
                "likely one, without the draw."
            )
        if wanted.measure is None:
            plain = self._plain_confidence(same, own)
            scores = {"margin": self.top_probs[:, 0] - self.top_probs[:, 1],
                      "entropy": self.entropy}  # fmt: skip
            if wanted.score == "entropy" and not self.complete:
                raise OldTraceError
            score = self._tensor(scores.get(wanted.score, plain))
            return Candidates(ids, self._tensor(plain), score), unknown
        if same and wanted.measure == own.measure and wanted.score in ("confidence", "random"):
            kept = self._tensor(self.confidence)
            return Candidates(ids, kept, kept), unknown
        assert wanted.params is not None, "only filtered distributions differ from the model's own"
        logits = self._tensor(np.log(np.maximum(self.top_probs, 1e-30)))
        filtered = filter_logits(logits, wanted.params, wanted.temperature)
        real = torch.ones(ids.shape, dtype=torch.bool)
        found = propose(filtered, real, wanted.score, 0.0, ())
        if wanted.params.top_p < 1 or not 0 < wanted.params.top_k <= self.top_probs.shape[1]:
            unknown.append(self._cut())
        confidence = self._tensor(self.confidence) if same else found.confidence
        return Candidates(ids, confidence, found.score), unknown

    def _plain_confidence(self, same: bool, own: Sampling) -> np.ndarray:
        """The probability of each token in the model's own distribution [n]."""
        return self.confidence if same and own.measure is None else self.top_probs[:, 0]

    def _cut(self) -> str:
        held = 100 * float(np.clip(self.top_probs.sum(1).min(), 0, 1))
        count = self.top_probs.shape[1]
        return (
            f"Probabilities after tempering, top p or top k are computed from the {count} most "
            f"probable tokens of each position, which hold at least {held:.1f} % of it."
        )

    def _chance(self, same: bool, wanted: Sampling, vocab: int) -> np.ndarray:
        """Bounds [n, 2] of the probability with which each token is drawn; 1 if it is known."""
        if same or wanted.draw is None:
            return np.ones((len(self.positions), 2))
        bounds = draw_bounds(self.top_probs, wanted.temperature, vocab)
        params = wanted.params or SamplingParams()
        if params.top_p < 1 or params.top_k:  # a filter removes other tokens only
            bounds[:, 1] = 1
        return bounds


def draw_bounds(top_probs: np.ndarray, temperature: float, vocab: int) -> np.ndarray:
    """Bounds [n, 2] of the probability of the most probable token at a temperature above 0.

    `top_probs` [n, K] are the K largest of `vocab` probabilities, in falling order. The others sum
    to what is left of 1, and none exceeds the last of the K; of sums of p^(1/T) under these two
    conditions, one extreme spreads the rest evenly and the other concentrates it.
    """
    top = np.clip(top_probs.astype(np.float64), 0, 1)
    power, others = 1 / temperature, max(vocab - top.shape[1], 1)
    rest, last = np.clip(1 - top.sum(1), 0, 1), np.maximum(top[:, -1], 1e-300)
    logs = np.log(np.maximum(top, 1e-300)) * power
    shift = logs[:, 0]
    known = np.exp(logs - shift[:, None]).sum(1)
    with np.errstate(divide="ignore"):  # a rest of 0 weighs nothing
        even = np.exp(np.log(rest / others) * power + np.log(others) - shift)
        dense = np.exp(np.log(rest) + np.log(last) * (power - 1) - shift)
    weights = np.sort(np.stack((even, dense), -1), axis=-1)
    found: np.ndarray = 1 / (known[:, None] + weights[:, ::-1])
    return found


def _undrawn(temperature: float) -> str:
    return (
        f"Temperature {temperature:g} draws each token at random, and what it would have drawn is "
        "not recorded. Each position has its most probable token here, with the probability that "
        "it is the one drawn."
    )
