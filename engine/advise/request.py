"""AdviceRequest: what is searched for, on which prompts, and what has to be kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from engine.advise.kept import check_kept
from engine.advise.search_space import grid, published, with_cache
from engine.batch.prompts import Prompt
from engine.catalog import check_model, derive_plan
from engine.config.spec import RunSpec
from engine.models.base import ModelInfo

LEAST_PROMPTS, MOST_SEARCH_PROMPTS = 6, 24
LEAST_CANDIDATES, MOST_CANDIDATES = 2, 64
FINALISTS = 2  # of the search, by their time


def searched_prompts(prompts: int) -> int:
    """How many of all `prompts` serve a search; the others serve the final test."""
    return min(max(prompts // 3, 2), MOST_SEARCH_PROMPTS)


def first_prompts(prompts: int) -> int:
    """How many of a search's `prompts` its first round uses."""
    return min(max(prompts // 4, 2), prompts)


def runs_of_rounds(candidates: int, prompts: int) -> int:
    """The most runs of successive halving: `candidates` on few of the prompts, the best on all."""
    count = first_prompts(prompts)
    left, runs = candidates, candidates * count
    while count < prompts:
        more = min(2 * count, prompts)
        left = min(left, max(-(-left // 2), 2))
        count, runs = more, runs + left * (more - count)
    return runs


@dataclass(frozen=True)
class AdviceRequest:
    """A search for settings of each of `caches`.

    `base` holds everything that is not searched: model, lengths, unmasker, number format. Plain
    decoding is `base` without a cache. `keep` is the share of `kind` (see `kept.KINDS`) that has to
    be kept. A search runs `candidates` settings of each cache; with `random` also as many that
    are drawn at random, for comparison. A third of the prompts, at most MOST_SEARCH_PROMPTS, serve
    the search, the others the final test. Raises ValueError naming the field.
    """

    base: RunSpec
    caches: tuple[str, ...]
    prompts: tuple[Prompt, ...]
    keep: float = 0.95
    kind: str = "answers"
    candidates: int = 12
    random: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        if len(self.prompts) < LEAST_PROMPTS:
            raise ValueError(
                f"prompts: {len(self.prompts)} are too few to search and to test; give at least "
                f"{LEAST_PROMPTS}"
            )
        if len({one.prompt for one in self.prompts}) < len(self.prompts):
            raise ValueError("prompts: two are the same; drop one, since those of a test are new")
        if not LEAST_CANDIDATES <= self.candidates <= MOST_CANDIDATES:
            raise ValueError(
                f"candidates: {self.candidates} is outside {LEAST_CANDIDATES} to {MOST_CANDIDATES}"
            )
        if not self.caches or len(set(self.caches)) < len(self.caches):
            raise ValueError("cache: name each method once, and at least one")
        check_kept(self.kind, self.keep, self.prompts)
        derive_plan(self.plain)
        for cache in self.caches:
            if not grid(self.base, cache):
                raise ValueError(f"cache: no setting of {cache} goes with {self.base.unmasker}")

    def check_model(self, info: ModelInfo) -> None:
        """Raise ValueError naming `cache` if a method does not go with the model's attention."""
        for cache in self.caches:
            check_model(with_cache(self.base, cache, {}), info)

    @property
    def plain(self) -> RunSpec:
        """The settings without a cache, with which the others are compared."""
        own = {k: v for k, v in self.base.knobs.items() if k.startswith(f"{self.base.unmasker}.")}
        return replace(self.base, cache="none", knobs=own, record="off")

    @property
    def search_prompts(self) -> Sequence[Prompt]:
        """The prompts of the search."""
        return self.prompts[: searched_prompts(len(self.prompts))]

    @property
    def first_prompts(self) -> int:
        """How many of the search's prompts the first round uses."""
        return first_prompts(len(self.search_prompts))

    def most_runs(self, family: str) -> int:
        """The most runs of settings that the search and the final test of all caches can need.

        `family` is that of the model, whose published settings are run.
        """
        prompts = len(self.search_prompts)
        rounds = runs_of_rounds(self.candidates, prompts)
        searches = 2 if self.random else 1
        tested = (FINALISTS + 3 + self.random) * len(self.held_back)
        known = sum(len(published(self.base, cache, family)) for cache in self.caches)
        return len(self.caches) * (searches * rounds + tested) + known * prompts

    @property
    def held_back(self) -> Sequence[Prompt]:
        """The prompts of the final test."""
        return self.prompts[len(self.search_prompts) :]
