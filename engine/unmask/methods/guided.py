"""Guided: an autoregressive model says how far a draft is good (arXiv 2505.21467, FlashDLM)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from engine.cache.base import CachePolicy, StepView
from engine.config.knobs import knob
from engine.core.device import HostCopy, upload
from engine.core.events import GuidedStep
from engine.guider.model import GuiderCost
from engine.guider.report import Report
from engine.guider.run_guider import RunGuider
from engine.guider.verification import RULES, Draft, Rule, Verifier, verify_draft
from engine.models.ops import wide
from engine.unmask.base import Candidates, Commit, Unmasker


@dataclass
class Guided(Unmasker):
    """Drafts every mask at once, left to right; commits the run that the guider agrees to.

    No token is the guider's: it accepts tokens of the model or not (but for `fallback` ar). Blocks
    are what caches go by; a draft may run past the current one as far as the cache's logits do.
    A committed end of text ends the run.
    """

    name = "guided"
    title = "Guided diffusion"
    paper = "arXiv 2505.21467"
    summary = "Drafts all tokens at once and commits as many as an autoregressive guider accepts."
    guided = True

    guider: str = knob(
        "tiny-qwen2", help="The autoregressive model: an embedded one, a Hub name or a folder."
    )
    rule: str = knob(
        "rel",
        choices=RULES,
        help="When it agrees: top1 its first choice; topk one of its first k; rel that, at tau of "
        "its best probability or more; rel_dlm the draft's best probability beats tau of its best.",
    )
    k: int = knob(2, 1, 1000, help="Rules topk and rel: how many first choices count.")
    tau: float = knob(
        0.5, 0.0, 1.0, help="Rules rel and rel_dlm: share of the guider's best probability."
    )
    fallback: str = knob(
        "dlm",
        choices=("dlm", "ar"),
        help="Whose token is committed where the first is not agreed to: the draft's or the "
        "guider's.",
    )
    block: int = knob(
        32, 1, 1024, label="Speculation block", help="Drafted tokens judged by one guider forward."
    )
    multi_chunk: bool = knob(
        True, help="Go on with the next block in the same step when one is accepted whole."
    )
    prompt: str = knob(
        "auto",
        choices=("auto", "shared", "own_template"),
        help="What the guider reads first: the same ids, or the turns in its own chat template; "
        "auto: the same ids where they name the same tokens in both.",
    )

    def check(self, policy: CachePolicy, block_length: int, eos_suppress: str) -> None:
        """Refuse a cache that may leave the first mask out, and ranking where none is done."""
        if not policy.can_commit(block_length):
            raise ValueError(
                "d2_cache.current_k: guided commits the first mask of a block, which must be among "
                f"the candidates; the least valid value is {block_length}, the block_length"
            )
        if eos_suppress == "confidence":
            raise ValueError(
                "eos_suppress: confidence ranks ends last, and guided does not rank; choose none "
                "or logits"
            )

    def set_guider(self, run_guider: RunGuider | None) -> None:
        """Take the guider; a fresh reader for each sequence."""
        assert run_guider is not None, "guided runs with a guider"
        self._guiding, rule = run_guider, Rule(self.rule, self.k, self.tau)
        self._judges = [
            Verifier(run_guider.open(), prompt, run_guider.pair, rule) for prompt in run_guider.prompts
        ]
        self._report: Report | None = None

    def restrict_logits(self, logits: Tensor) -> None:
        """Only what the guider can judge is drafted."""
        self._guiding.pair.restrict_logits(logits)

    def rows(self, masked: np.ndarray, block: slice, logits_end: np.ndarray) -> np.ndarray:
        """The first masks of each sequence, as many as a step may judge, up to the edge."""
        most = masked.shape[1] if self.multi_chunk else self.block + self._guiding.pair.tail
        near = np.cumsum(masked, 1) <= most
        return masked & near & (np.arange(masked.shape[1]) < logits_end[:, None])

    def commit(self, candidates: Candidates, view: StepView) -> Commit:
        """The accepted run of each sequence, or the fallback's token."""
        told = zip(view.real_host, view.needs_host, view.masked_host, strict=True)
        places, mask = [_leading(*row) for row in told], np.zeros_like(view.real_host)
        ids, drafts = self._drafts(candidates, view, places)
        found = {
            row: verify_draft(self._judges[row], draft, self.block, self.multi_chunk, self.fallback)
            for row, draft in drafts.items()
        }
        for row, settled in found.items():
            taken = places[row][: len(settled.ids)]
            mask[row, taken], ids[row, taken] = True, settled.ids
        kept = None if 0 not in found or candidates.logits is None else candidates.logits[0]
        if kept is not None:
            kept = kept[upload(places[0], kept.device)]
        self._report = Report(found.get(0), self._spent(), kept)
        device = view.needs.device
        return Commit(upload(mask, device), upload(ids, device))

    def end_of_text_rule(self, asked: str) -> str:
        """An end of text that is committed ends the run, whatever is asked (spec.eos official)."""
        return "fill_safe" if asked == "official" else asked

    def report(self, detail: bool) -> GuidedStep | None:
        """What the guider made of the last step's drafts."""
        assert self._report is not None, "a step is reported once it is taken"
        report, self._report = self._report, None
        return report.written(self._guiding, detail)

    def held(self) -> int:
        """Bytes of the guider's keys and values."""
        return sum(judge.reader.held() for judge in self._judges)

    def _drafts(
        self, candidates: Candidates, view: StepView, places: list[np.ndarray]
    ) -> tuple[np.ndarray, dict[int, Draft]]:
        """The ids proposed [B, n], a copy, and the draft of each sequence that has one."""
        confidence, needs = candidates.confidence, view.needs_host
        surest = confidence
        if self.rule == "rel_dlm":
            assert candidates.logits is not None, "the loop hands logits over"
            surest = wide(candidates.logits).softmax(-1).amax(-1)
        ids, canvas, sure, best = HostCopy(
            candidates.ids, view.canvas, confidence.double(), surest.double()
        ).get()
        return ids.copy(), {
            row: Draft(
                needs[row, at], ids[row, at], sure[row, at], best[row, at],
                canvas[row], view.masked_host[row], view.run.prompt_length,
            )
            for row, at in enumerate(places) if len(at)
        }  # fmt: skip

    def _spent(self) -> GuiderCost:
        """What all readers spent in the step."""
        return sum((judge.reader.take() for judge in self._judges), GuiderCost())


def _leading(real: np.ndarray, needs: np.ndarray, masked: np.ndarray) -> np.ndarray:
    """Places in `needs` [n] of the masks [T] without a gap from the first on, as far as real."""
    places = np.flatnonzero(real)
    first = np.flatnonzero(masked)[: len(places)]
    return places[np.cumprod(needs[places] == first).astype(bool)]
