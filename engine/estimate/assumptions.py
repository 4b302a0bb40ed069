"""Assumptions in place of what data decides: tokens a forward, and rows chosen by values."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, ClassVar

import numpy as np
import torch

from engine.cache.base import ModelInfo, RunInfo, StepView
from engine.catalog import make_policy, make_unmasker
from engine.config.spec import RunSpec
from engine.core.files import ASSETS
from engine.core.tables import percentage
from engine.guider.alignment import LOOKAHEAD
from engine.unmask.base import Candidates, Commit, Unmasker
from engine.unmask.schedule import BlockProgress

MEASURED = ASSETS / "results" / "estimate.json"  # python -m engine estimate-error writes it
MAX_TOKENS = 1024.0


@dataclass(frozen=True)
class Assumptions:
    """What is assumed of the data; None: the default of the method.

    `tokens_per_forward`, at least 1, for an unmasker without a schedule. `share` in [0, 1], for a
    cache whose rows depend on values (CachePolicy.data_rows says of what it is the share).
    `source`: where both come from, in words, but those in `given`, which a person gave. `filled`:
    how many of the tokens that `tokens_per_forward` counts were not decoded but filled after the
    end of a recorded run's text.
    """

    tokens_per_forward: float | None = None
    share: float | None = None
    source: str = ""
    filled: int = 0
    given: frozenset[str] = frozenset()  # names of fields

    def __post_init__(self) -> None:
        bounds = {"tokens_per_forward": (1.0, MAX_TOKENS), "share": (0.0, 1.0)}
        for name, (low, high) in bounds.items():
            given = getattr(self, name)
            if given is None:
                continue
            if type(given) not in (int, float) or not low <= given <= high:
                raise ValueError(f"{name}: {given!r} is not a number from {low:g} to {high:g}")

    def source_of(self, name: str) -> str:
        """Where the value of a field comes from, in words."""
        return "as given" if name in self.given or not self.source else self.source


@dataclass
class AssumedUnmasker(Unmasker):
    """Commits `tokens` tokens a forward on average, from left to right, at least one.

    Its candidates are those of `rule`, or without one the first `reach` masks, also beyond the
    block, and `lookahead` more, which are drafted and not committed.
    """

    name: ClassVar[str] = "assumed"
    title: ClassVar[str] = "Assumed"

    tokens: float = 1.0
    reach: int = 0
    lookahead: int = 0
    rule: Unmasker | None = None

    def __post_init__(self) -> None:
        """Nothing to check: the fields are not knobs."""

    def start(
        self,
        run: RunInfo,
        steps_per_block: int | None,
        progress: Mapping[int, BlockProgress] | None = None,
    ) -> None:
        """No token is committed yet."""
        self._due, self._spent = 0.0, 0
        if self.rule is not None:
            self.rule.start(run, steps_per_block, progress)

    def candidate_positions(
        self, masked: np.ndarray, block: slice, logits_end: np.ndarray
    ) -> np.ndarray:
        """The masks that may be committed."""
        if self.rule is not None:
            return self.rule.candidate_positions(masked, block, logits_end)
        near = np.cumsum(masked, 1) <= self.reach + self.lookahead
        return masked & near & (np.arange(masked.shape[1]) < logits_end[:, None])

    def commit(self, candidates: Candidates, view: StepView) -> Commit:
        """As many as are due after this forward; what a block's end cuts off is due later."""
        self._due += self.tokens
        most = int(view.real_host.sum())
        if self.rule is None:
            most = min(most, self.reach)
        number = min(max(1, round(self._due) - self._spent), most)
        self._spent += number
        return Commit(candidates.top(torch.tensor([number])), candidates.ids)

    def skip(self) -> None:
        """Count a forward that proposes nothing, as `tokens` is a mean over all forwards."""
        self._due += self.tokens


def assumed_unmasker(spec: RunSpec, tokens: float) -> Unmasker:
    """The unmasker of a spec, or one of `tokens` tokens a forward if confidence decides."""
    unmasker = make_unmasker(spec)
    if not unmasker.confidence_decides:
        return unmasker
    if not unmasker.guided:
        return AssumedUnmasker(tokens=tokens, rule=unmasker)
    wide = spec.gen_length if _is_wide(unmasker) else unmasker.block  # type: ignore[attr-defined]
    ahead = 0 if _is_wide(unmasker) else LOOKAHEAD
    return AssumedUnmasker(tokens=tokens, reach=wide, lookahead=ahead)


def _is_wide(unmasker: Unmasker) -> bool:
    """Whether a guided unmasker may verify every mask of the answer in one step."""
    return bool(getattr(unmasker, "multi_chunk", True))


def complete(
    spec: RunSpec, given: Assumptions, info: ModelInfo
) -> tuple[Assumptions, tuple[str, ...]]:
    """The assumptions that a spec needs for a model, with defaults, and each of them in words.

    Fields that the spec does not need are None: a schedule fixes its own tokens, and the rows of
    most caches follow from the settings.
    """
    tokens, share, words = None, None, []
    unmasker, policy = make_unmasker(spec), make_policy(spec)
    rows = policy.data_rows()
    if unmasker.confidence_decides:
        tokens, source = given.tokens_per_forward, given.source_of("tokens_per_forward")
        if tokens is None:
            tokens, source = _measured_tokens(spec.unmasker)
        rule = f"{unmasker.title} commits as many tokens as the model's confidence allows"
        if unmasker.guided:
            rule = f"The guider decides how many tokens {unmasker.title} commits"
        words.append(f"{rule}. Assumed: {tokens:.3g} a forward on average ({source}).")
        if unmasker.guided and not _is_wide(unmasker):
            words.append(
                "The guider is taken to have another vocabulary than the model, so that a step "
                f"drafts {LOOKAHEAD} masks beyond the speculation block."
            )
    elif unmasker.planned_counts(spec.block_length, max(spec.steps // spec.blocks, 1)) is None:
        words.append(
            f"Chance decides how many tokens {unmasker.title} commits in a step. Assumed: one draw."
        )
    if rows is not None:
        share = rows.share if given.share is None else given.share
        source = rows.default if given.share is None else given.source_of("share")
        words.append(f"{rows.what}. Assumed: {percentage(share)} ({source}).")
    if policy.rows_by_order(info, spec.block_length):
        words.append(
            "The rows that the cache computes depend on the order in which a block's tokens are "
            "committed. Assumed: from left to right."
        )
    return replace(given, tokens_per_forward=tokens, share=share), tuple(words)


@cache
def measured() -> Mapping[str, Any]:
    """The content of MEASURED; empty if the file is missing."""
    if not MEASURED.exists():
        return {}
    found: Mapping[str, Any] = json.loads(MEASURED.read_text("utf-8"))
    return found


def _measured_tokens(unmasker: str) -> tuple[float, str]:
    """Tokens a forward of an unmasker on an embedded model; 1 if it was not measured."""
    found = measured().get("tokens_per_forward", {}).get(unmasker)
    if found is None:
        return 1.0, "the fewest that are possible"
    where = measured()["assumed_from"]
    return max(float(found), 1.0), f"measured at its default settings: {where}"


def general(spec: RunSpec, prompt_tokens: int, filled: int = 0) -> Sequence[str]:
    """The assumptions of every estimate of a spec, in words; `filled` as in Assumptions."""
    end = ", and no end of text cuts the run short."
    if filled:
        end = (
            f". The end of its text cut the recorded run short: {filled} of its tokens were filled "
            "and not decoded. The tokens a forward count them; a run that decodes every position "
            "can take more forwards."
        )
    positions = f"{spec.gen_length} positions of the answer"
    if spec.fixed:
        positions = f"{spec.gen_length - len(spec.fixed)} positions that are not given"
    return (
        f"One prompt of {prompt_tokens} tokens; all {positions} "
        f"{'count as' if filled else 'are'} decoded, from left to right within a block{end}",
        "Only what the run needs is computed: the last layer and the head only for the rows whose "
        "logits are read, as in this engine. Published code often computes the head for all rows.",
    )
