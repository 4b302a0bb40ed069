"""Guided decoding as FlashDLM released it: its rule `prob`, id swap and the guider's cache."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from engine.cache.base import StepView
from engine.core.device import upload
from engine.guider.model import Guider, GuiderReader
from engine.guider.run_guider import RunGuider
from engine.guider.verification import AcceptanceRule, VerifiedDraft
from engine.unmask.base import Candidates, Commit
from engine.unmask.methods.guided import Guided


@dataclass(frozen=True)
class ThresholdRule(AcceptanceRule):
    """The release's rule `prob`: p(d) > threshold."""

    threshold: float = 0.0

    def accepts(self, drafted: Tensor, log_p: Tensor, max_p_f: Tensor) -> Tensor:
        """Decisions [m] about tokens `drafted` [m], given log p [m, V]."""
        return log_p.gather(1, drafted[:, None])[:, 0].exp() > self.threshold


@dataclass(frozen=True)
class GuiderCall:
    """A forward of the guider over the positions `fed`, in step `step`.

    `judges`: it verifies drafts; else it catches up with the text. `held` are the text position
    and the id of each row in the cache before it, `logits` [n, V] of the rows fed.
    """

    step: int
    judges: bool
    fed: range
    held: tuple[tuple[int, int], ...]
    logits: Tensor


class ReleasedReader(GuiderReader):
    """A guider's cache as released: ids counted as cached, and rows that it really holds.

    It feeds the last id of the text and a chunk of drafts but its last one; a chunk that is shorter
    than `chunk` is fed whole. After a step it keeps as many rows as were counted before, and one
    for each accepted draft. But it counts no more ids than the last chunk fed, so that, after
    several chunks, ids that are cached are fed again behind their own rows. Rows of accepted
    drafts that the text did not take stay.
    """

    def __init__(self, guider: Guider, chunk: int) -> None:
        super().__init__(guider)
        self._chunk, self._counted, self._positions = chunk, 0, list[int]()
        self._known: int | None = None  # ids of the text before the drafts; None between steps
        self.calls: list[GuiderCall] = []
        self.after_steps: list[tuple[int, int]] = []  # (ids counted, rows held)

    @torch.inference_mode()
    def read(self, ids: Sequence[int], known: int) -> Tensor:
        """Logits [len(ids) - known, V] of each of `ids[known:]`, given the rows held."""
        if self._known is None:
            self._known = known
            if self._counted < known - 1:
                self._feed(ids, range(self._counted, known - 1), judges=False)
                self._counted = known - 1
        end = min(known - 1 + self._chunk, len(ids))
        return self._feed(ids, range(known - 1, end), judges=True)[: len(ids) - known]

    def crop(self, ids: Sequence[int]) -> None:
        """End a step after which `ids` are the text, as far as the guider accepted it."""
        assert self._known is not None, "a step reads before it crops"
        kept = len(ids) - self._known
        self._crop_to(self._counted + kept)
        del self._positions[len(self.ids) :]
        self._counted += min(kept, len(self.calls[-1].fed))
        self._known = None
        self.after_steps.append((self._counted, self.cache.get_seq_length()))

    def _feed(self, ids: Sequence[int], fed: range, judges: bool) -> Tensor:
        held = tuple(zip(self._positions, self.ids, strict=True))
        assert self.cache.get_seq_length() == len(held), "the cache holds what is listed"
        tokens = [ids[i] for i in fed]
        logits: Tensor = self._guider.model(
            input_ids=self._tensor(tokens), past_key_values=self.cache, use_cache=True
        ).logits[0]
        self.ids += tokens
        self._positions += fed
        self.calls.append(GuiderCall(len(self.after_steps), judges, fed, held, logits))
        return logits


@dataclass(frozen=True)
class ReleasedStep:
    """What a step verified, the ids that the check `chosen` returned, and how many it committed."""

    verified: VerifiedDraft
    chosen: list[int]
    committed: int


class ThresholdGuided(Guided):
    """Guided decoding with the release's rule `prob` if it has a `threshold`."""

    threshold: float | None = None

    def set_guider(self, run_guider: RunGuider | None) -> None:
        """Use the threshold instead of the knobs' rule."""
        super().set_guider(run_guider)
        if self.threshold is not None:
            rule = ThresholdRule("prob", self.k, self.tau, self.threshold)
            self._verifiers = [replace(one, rule=rule) for one in self._verifiers]


class ReleasedGuided(ThresholdGuided):
    """Guided decoding that compares each draft with the id that the check returns.

    The check returns the accepted drafts and, after a refusal, the guider's first choice, with two
    ids swapped (`swapped`). The leading drafts that equal it are committed, at least one, and none
    behind an end of text (`text_end`). After a refusal by a threshold nothing is chosen.
    """

    swapped: Mapping[int, int] = {}
    text_end = -1

    def set_guider(self, run_guider: RunGuider | None) -> None:
        """Clear the steps of the run before."""
        super().set_guider(run_guider)
        self.steps: list[ReleasedStep] = []

    @property
    def reader(self) -> ReleasedReader:
        """The guider's reader of the only sequence."""
        reader = self._verifiers[0].reader
        assert isinstance(reader, ReleasedReader)
        return reader

    def commit(self, candidates: Candidates, view: StepView) -> Commit:
        """Commit the drafts that the swapped check leaves."""
        super().commit(candidates, view)
        assert self._report is not None
        verified = self._report.verified
        assert verified is not None, "the only sequence has a draft"
        draft, chosen = verified.draft, self._chosen(verified)
        equal = draft.ids[: len(chosen)] == chosen
        count = max(int(np.cumprod(equal).sum()), 1)
        ends = np.flatnonzero(draft.ids[:count] == self.text_end)
        count = int(ends[0]) + 1 if len(ends) else count
        self.steps.append(ReleasedStep(verified, chosen, count))
        mask = np.isin(view.needs_host, draft.positions[:count]) & view.real_host
        return Commit(upload(mask, candidates.ids.device), candidates.ids)

    def _chosen(self, verified: VerifiedDraft) -> list[int]:
        ids = verified.draft.ids[: verified.accepted].tolist()
        begin, verdict = verified.verdicts[-1]
        if verified.accepted < len(verified.draft.ids) and self.threshold is None:
            assert verdict.verification is not None, "a shared vocabulary is always verified"
            ids.append(int(verdict.verification.top_ids[verified.accepted - begin]))
        return [self.swapped.get(i, i) for i in ids]
