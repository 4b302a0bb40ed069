"""BatchResults: the outcomes of a batch, summed up by setting and paired with the first one."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from engine.batch.outcome import Outcome
from engine.batch.prompts import Prompt
from engine.batch.settings import NamedSpec
from engine.batch.statistics import (
    agreement,
    bootstrap_interval,
    discordant,
    mcnemar,
    quantiles,
)

Pair = tuple[Outcome, Outcome]


class BatchResults:
    """Outcomes by setting and prompt; the first setting is what the others are compared with.

    `settings` and `prompts` are those of the batch. Results may be read while outcomes are added.
    """

    def __init__(self, settings: Sequence[NamedSpec], prompts: Sequence[Prompt]) -> None:
        self.settings, self.prompts = tuple(settings), tuple(prompts)
        self._outcomes: dict[tuple[int, int], Outcome] = {}

    def add(self, setting: int, prompt: int, outcome: Outcome) -> None:
        """Add the outcome of a setting (index) and a prompt (index)."""
        self._outcomes[setting, prompt] = outcome

    def outcome(self, setting: int, prompt: int) -> Outcome | None:
        """An outcome, None if there is none yet."""
        return self._outcomes.get((setting, prompt))

    def summary(self) -> list[dict[str, Any]]:
        """A row for each setting, over its runs that are done.

        - `name`, `spec`, `runs`, `failed`: numbers of runs that were done and that failed;
        - `pairs`: runs whose prompt was also done with the first setting; over them `agreement`
          (share of equal tokens before the end, of those with the same vocabulary: mean, `interval`
          of the mean and `quantiles`), `same_answer` (share with the same final number; without
          one, with the same text or both right), and `speed_up` and `text_speed_up`, medians of the
          ratios of their times;
        - over pairs with a known answer: `gained`, `lost` and McNemar's `p`;
        - `known`, `right`: runs with a known answer, and those of them that are right;
        - means over the runs: `forwards`, `text_forwards`, `tokens`, `recomputed`, `gflops`, `ms`;
          and `tokens_per_s`, tokens before the end a second of engine time.

        A figure without runs is None, and so is the interval of a single pair.
        """
        return [self._row(index) for index in range(len(self.settings))]

    def table(self) -> list[dict[str, Any]]:
        """A row for each prompt: `prompt`, `answer`, and `runs`, one for each setting or None.

        A run has its outcome without `ids`, and `agreement` with the first setting.
        """
        places = range(len(self.settings))
        return [
            {"prompt": one.prompt, "answer": one.answer}
            | {"runs": [self.run(index, setting) for setting in places]}
            for index, one in enumerate(self.prompts)
        ]

    def run(self, prompt: int, setting: int) -> dict[str, Any] | None:
        """A run as in `table`, by the indices of its prompt and its setting."""
        own, first = self.outcome(setting, prompt), self.outcome(0, prompt)
        if own is None:
            return None
        row = own.to_dict() | {"tokens": own.tokens, "agreement": None}
        del row["ids"], row["vocabulary"]
        if _done(own) and first is not None and _done(first) and _comparable(first, own):
            row["agreement"] = agreement(first.ids, own.ids)
        return row

    def _row(self, setting: int) -> dict[str, Any]:
        named = self.settings[setting]
        held = list(self._outcomes.items())  # a copy, for another thread may add some
        every = [one for (index, _), one in held if index == setting]
        runs = [one for one in every if _done(one)]
        known = [one for one in runs if one.right is not None]
        row = {"name": named.name, "spec": named.spec.to_dict(), "runs": len(runs)}
        row |= {"failed": len(every) - len(runs), "known": len(known)}
        row |= {"right": sum(bool(one.right) for one in known)}
        return row | _means(runs) | _paired(self._pairs(setting))

    def _pairs(self, setting: int) -> list[Pair]:
        """The outcomes of the first setting and of another on the same prompt, both done."""
        both = ((self.outcome(0, i), self.outcome(setting, i)) for i in range(len(self.prompts)))
        return [(a, b) for a, b in both if a and b and _done(a) and _done(b)]


def _done(outcome: Outcome) -> bool:
    return outcome.reason == "done"


def _means(runs: Sequence[Outcome]) -> dict[str, float | None]:
    """Means over runs, and their rate."""
    names = ("forwards", "text_forwards", "tokens", "recomputed", "gflops", "ms")
    if not runs:
        return dict.fromkeys((*names, "tokens_per_s"))
    found = {name: sum(getattr(one, name) for one in runs) / len(runs) for name in names}
    seconds = sum(one.ms for one in runs) / 1e3
    return found | {"tokens_per_s": sum(one.tokens for one in runs) / seconds if seconds else None}


def _paired(pairs: Sequence[Pair]) -> dict[str, Any]:
    """What pairs of runs on the same prompts say."""
    same = [agreement(a.ids, b.ids) for a, b in pairs if _comparable(a, b)]
    judged = [(a.right, b.right) for a, b in pairs if None not in (a.right, b.right)]
    gained, lost = discordant(judged)
    answers = [same_answer(a, b) for a, b in pairs]
    return {
        "pairs": len(pairs),
        "agreement": sum(same) / len(same) if same else None,
        "interval": list(bootstrap_interval(same)) if len(same) > 1 else None,
        "quantiles": quantiles(same) if same else None,
        "same_answer": sum(answers) / len(answers) if answers else None,
        "gained": gained,
        "lost": lost,
        "p": mcnemar(gained, lost) if judged else None,
        "speed_up": _ratio([(a.ms, b.ms) for a, b in pairs]),
        "text_speed_up": _ratio([(a.text_ms, b.text_ms) for a, b in pairs]),
    }


def same_answer(a: Outcome, b: Outcome) -> bool:
    """Whether two runs end with the same number; without one, have the same tokens or are right.

    Of two vocabularies the texts are compared.
    """
    if a.number is None and b.number is None:
        same = a.ids == b.ids if _comparable(a, b) else a.text == b.text
        return same or bool(a.right and b.right)
    return a.number == b.number


def _comparable(a: Outcome, b: Outcome) -> bool:
    """Whether equal ids mean equal tokens."""
    return a.vocabulary == b.vocabulary


def _ratio(times: Sequence[tuple[float, float]]) -> float | None:
    """The median of the first time over the second; None if there is none."""
    ratios = [a / b for a, b in times if a and b]
    return median(ratios) if ratios else None
