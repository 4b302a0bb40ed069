"""Guided diffusion: an autoregressive model verifies drafts (arXiv 2505.21467, FlashDLM)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from engine.cache.base import CachePolicy, StepView
from engine.config.knobs import knob
from engine.config.spec import RunSpec
from engine.core.device import HostCopy, upload
from engine.core.events import GuidedStep
from engine.guider.model import GuiderCost
from engine.guider.report import GuidanceReport
from engine.guider.run_guider import RunGuider
from engine.guider.verification import RULES, AcceptanceRule, Draft, Verifier, verify_draft
from engine.models.ops import upcast
from engine.unmask.base import Candidates, Commit, Unmasker


@dataclass
class Guided(Unmasker):
    """Drafts every masked position at once and commits the leading tokens that the guider accepts.

    All committed tokens are the model's own, except with `fallback` ar. A draft can extend past
    the current block as far as the cache policy computes logits. A committed end of text ends the
    run.
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
        help="When the guider accepts a token: top1, it is the guider's first choice; topk, one of "
        "its first k; rel, one of its first k with at least tau times the probability of its "
        "first choice; "
        "rel_dlm, the draft's best probability exceeds tau times the guider's.",
    )
    k: int = knob(2, 1, 1000, help="Rules topk and rel: number of first choices that count.")
    tau: float = knob(
        0.5, 0.0, 1.0, help="Rules rel and rel_dlm: fraction of the guider's best probability."
    )
    fallback: str = knob(
        "dlm",
        choices=("dlm", "ar"),
        help="If the first token is not accepted, dlm commits the draft's and ar the guider's.",
    )
    block: int = knob(
        32, 1, 1024, label="Speculation block", help="Drafted tokens verified by a guider forward."
    )
    multi_chunk: bool = knob(
        True, help="Verify the next block in the same step if one is accepted in full."
    )
    prompt: str = knob(
        "auto",
        choices=("auto", "shared", "own_template"),
        help="The guider's prompt: the same ids (shared), or the turns in its own chat template; "
        "auto shares the ids if they name the same tokens in both vocabularies.",
    )

    def check(self, policy: CachePolicy, spec: RunSpec) -> None:
        """Raise ValueError if the cache may omit the first mask, or for ends that may be committed.

        Ends of text cannot be ranked last, and the guider's own token may be one.
        """
        super().check(policy, spec)
        if self.fallback == "ar" and spec.eos_suppress == "logits":
            raise ValueError(
                "guided.fallback: ar commits the guider's token, which may be the end of text that "
                "eos_suppress excludes; choose dlm, or set eos_suppress to none"
            )
        policy.check_commits(spec.block_length, "guided commits the first mask of a block")

    @property
    def ranks_by_score(self) -> bool:
        """False: the guider decides."""
        return False

    def set_guider(self, run_guider: RunGuider | None) -> None:
        """Store the guider and open a reader for each sequence."""
        assert run_guider is not None, "guided runs with a guider"
        self._run_guider, self._vocabularies = run_guider, run_guider.vocabularies
        rule = AcceptanceRule(self.rule, self.k, self.tau)
        self._verifiers = [
            Verifier(run_guider.open_reader(), prompt, self._vocabularies, rule)
            for prompt in run_guider.prompts
        ]
        self._report: GuidanceReport | None = None

    def candidate_positions(
        self, masked: np.ndarray, block: slice, logits_end: np.ndarray
    ) -> np.ndarray:
        """The first masks of each sequence, as many as a step can verify, before `logits_end`."""
        most = masked.shape[1] if self.multi_chunk else self.block + self._vocabularies.lookahead
        near = np.cumsum(masked, 1) <= most
        return masked & near & (np.arange(masked.shape[1]) < logits_end[:, None])

    def restrict_logits(self, logits: Tensor) -> None:
        """Exclude tokens that the guider cannot verify."""
        self._vocabularies.restrict_logits(logits)

    def commit(self, candidates: Candidates, view: StepView) -> Commit:
        """Commit the accepted tokens of each sequence, or the fallback's token."""
        mask = np.zeros_like(view.real_host)
        ids, places, drafts = self._drafts(candidates, view)
        results = {
            row: verify_draft(
                self._verifiers[row], draft, self.block, self.multi_chunk, self.fallback
            )
            for row, draft in drafts.items()
        }
        for row, verified in results.items():
            taken = places[row][: len(verified.ids)]
            mask[row, taken], ids[row, taken] = True, verified.ids
        logits = None
        if 0 in results and candidates.logits is not None:
            logits = candidates.logits[0][upload(places[0], candidates.logits.device)]
        cost = sum((verifier.reader.take_cost() for verifier in self._verifiers), GuiderCost())
        self._report = GuidanceReport(results.get(0), cost, logits)
        device = view.needs.device
        chosen = upload(ids, device)
        own = self._own_confidence(candidates, chosen)
        return Commit(upload(mask, device), chosen, confidence=own)

    def end_of_text_rule(self, eos: str) -> str:
        """At least fill_safe, since a committed end of text ends the run."""
        return "fill_safe" if eos == "official" else eos

    def guider_report(self, detail: bool) -> GuidedStep | None:
        """The guider's results for the last step's drafts."""
        assert self._report is not None, "a step is reported once, after its commit"
        report, self._report = self._report, None
        return report.event(self._run_guider, detail)

    def cached_bytes(self) -> int:
        """Bytes of the guider's keys and values."""
        return sum(verifier.reader.cache_bytes() for verifier in self._verifiers)

    def _own_confidence(self, candidates: Candidates, ids: Tensor) -> Tensor | None:
        """The model's probability of `ids` [B, n], some of which may be the guider's, or None."""
        if self.fallback == "dlm":
            return None
        assert candidates.logits is not None, "guided unmaskers get logits"
        other, own = ids != candidates.ids, candidates.confidence.clone()  # few are others
        rows = upcast(candidates.logits[other]).softmax(-1)
        own[other] = rows.gather(-1, ids[other][:, None])[:, 0].to(own)
        return own

    def _drafts(
        self, candidates: Candidates, view: StepView
    ) -> tuple[np.ndarray, list[np.ndarray], dict[int, Draft]]:
        """A copy of the proposed ids [B, n], and places and draft of each sequence with masks.

        A draft ends before the first token whose probability is no number.
        """
        confidence, needs = candidates.confidence, view.needs_host
        max_p = confidence
        if self.rule == "rel_dlm":
            assert candidates.logits is not None, "guided unmaskers get logits"
            max_p = upcast(candidates.logits).softmax(-1).amax(-1)
        ids, canvas, p, best = HostCopy(
            candidates.ids, view.canvas, confidence.double(), max_p.double()
        ).get()
        rows = zip(view.real_host & np.isfinite(p), needs, view.masked_host, strict=True)
        places = [_leading_masks(*row) for row in rows]
        return ids.copy(), places, {
            row: Draft(
                needs[row, at], ids[row, at], p[row, at], best[row, at],
                canvas[row], view.masked_host[row], view.run.prompt_length,
            )
            for row, at in enumerate(places) if len(at)
        }  # fmt: skip


def _leading_masks(real: np.ndarray, needs: np.ndarray, masked: np.ndarray) -> np.ndarray:
    """Indices into `needs` [n] of the first masked positions [T], up to the first one missing."""
    places = np.flatnonzero(real)
    first = np.flatnonzero(masked)[: len(places)]
    return places[np.cumprod(needs[places] == first).astype(bool)]
