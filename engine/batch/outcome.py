"""Outcome: what is kept of one run of a batch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from types import NoneType
from typing import Any

from engine.config.answers import final_number, is_right, number_of
from engine.core.events import Event, RunFinished, RunStarted

FAILED = ("failed", "memory")
KINDS: Mapping[str, tuple[type, ...]] = {  # of the values of an outcome
    **dict.fromkeys(("reason", "message", "text", "vocabulary"), (str,)),
    **dict.fromkeys(("forwards", "text_forwards", "cache_bytes"), (int,)),
    **dict.fromkeys(("ms", "text_ms", "gflops", "recomputed"), (float, int)),
    "number": (int, NoneType), "right": (bool, NoneType),
}  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """A finished run.

    `ids` are the answer's tokens before the first end of text, of a `vocabulary`
    (Tokenizer.vocabulary), and `text` says the same; `right` and `number` are None if there is no
    known answer or no number, or if the answer was cut off because the run was stopped; `number` is
    also None if the known answer is no number. `forwards` and `ms` are those of the whole run,
    `text_forwards` and `text_ms` those until the text was complete; a step counts as one forward,
    also if guidance takes two. `recomputed` is the share of token-layers that was recomputed
    (`engine.trace.metrics.recomputed_share`). `reason` is one of `engine.core.events.REASONS`, and
    `message` says what failed.
    """

    reason: str
    message: str = ""
    text: str = ""
    ids: tuple[int, ...] = ()
    vocabulary: str = ""
    number: int | None = None
    right: bool | None = None
    forwards: int = 0
    text_forwards: int = 0
    ms: float = 0.0
    text_ms: float = 0.0
    gflops: float = 0.0
    recomputed: float = 0.0
    cache_bytes: int = 0

    @property
    def tokens(self) -> int:
        """Number of tokens before the first end of text."""
        return len(self.ids)

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain data."""
        return asdict(self) | {"ids": list(self.ids)}

    @classmethod
    def from_dict(cls, row: Mapping[str, Any]) -> Outcome:
        """The outcome of the fields that `to_dict` gave.

        Raises TypeError for other fields, or for a value that `to_dict` would not give.
        """
        known = {field.name for field in fields(cls)}
        if set(row) != known:
            raise TypeError("outcome: the fields are those of another version")
        if type(row["ids"]) is not list:
            raise TypeError("outcome: ids is no list")
        found = cls(**{**row, "ids": tuple(row["ids"])})
        for name, kinds in KINDS.items():
            if type(getattr(found, name)) not in kinds:
                raise TypeError(f"outcome: {name} has a value of another kind")
        if any(type(one) is not int for one in found.ids):
            raise TypeError("outcome: ids has other values than whole numbers")
        return found


class OutcomeBuilder:
    """Collects the outcome of a run from its events; `answer` is the right one, if it is known."""

    def __init__(self, answer: str | None) -> None:
        self._answer = answer
        self._vocabulary = ""
        self._end: RunFinished | None = None

    def append(self, event: Event) -> None:
        """Append the next event of the run."""
        if isinstance(event, RunStarted):
            self._vocabulary = str(event.model["vocabulary"])
        elif isinstance(event, RunFinished):
            self._end = event

    def outcome(self) -> Outcome:
        """The outcome after the last event."""
        if self._end is None:
            return Outcome("failed", "the run gave no end")
        if self._end.reason in FAILED or not self._end.texts:
            return Outcome(self._end.reason, self._end.message)
        found = _outcome(self._end, self._answer)
        return replace(found, vocabulary=self._vocabulary)


def outcome_of(events: Iterable[Event]) -> Outcome:
    """Run a stream of events to its end and keep its outcome."""
    found = OutcomeBuilder(None)
    for event in events:
        found.append(event)
    return found.outcome()


def _outcome(end: RunFinished, answer: str | None) -> Outcome:
    """The outcome of a run that gave a text."""
    text, metrics, ended = end.texts[0], end.metrics, end.reason == "done"
    of_number = answer is None or number_of(answer) is not None
    return Outcome(
        reason=end.reason,
        text=text,
        ids=end.answer,
        number=final_number(text) if ended and of_number else None,
        right=None if answer is None or not ended else is_right(text, answer),
        forwards=metrics["nfe"],
        text_forwards=metrics["text_nfe"],
        ms=metrics["total_ms"],
        text_ms=metrics["text_ms"],
        gflops=metrics["gflops"],
        recomputed=metrics["recomputed"],
        cache_bytes=metrics["cache_bytes"] or 0,
    )
