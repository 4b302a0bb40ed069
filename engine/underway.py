"""Underway: a step between the asking and the telling."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from engine import eos
from engine.cache.base import StepView
from engine.clock import Clock, Mark
from engine.events import StepEvent
from engine.host import Landing
from engine.tokens import Tokens


@dataclass(frozen=True)
class Underway:
    """A step that the device has been asked for and the host has not been told of.

    `landing` brings the positions committed (T: none), the ids and the confidences, [B, n] each;
    `counts` [B] is how many are committed, where that is known beforehand; `marks` lie before the
    forward, after it and after the commit; `known` are the fields of its event known by now.
    """

    view: StepView
    landing: Landing
    counts: np.ndarray | None
    marks: tuple[Mark, Mark, Mark]
    known: dict[str, Any]

    def tell(self, tokens: Tokens, clock: Clock, ending: str, skips: bool) -> StepEvent:
        """Wait for the step and note on the host what it did.

        `ending` is the end-of-text rule; `skips` says that a step may commit nothing. RuntimeError
        where it committed less than it must.
        """
        places, proposed, sure = self.landing.get()
        began = time.perf_counter()
        run, chosen = self.view.run, places < self.view.run.length
        self._check(chosen.sum(1), skips)
        sequences, columns = np.nonzero(chosen)
        positions, ids = places[sequences, columns], proposed[sequences, columns]
        confidence = sure[sequences, columns]
        tokens.tell(sequences, positions, ids)
        info = run.info
        fill = eos.ended_rows(ending, tokens.ids, tokens.masked, info.stop_ids, run.prompt_length)
        if fill.any():
            more, where = np.nonzero(fill)
            tokens.fill(fill, info.eos_id)
            sequences, positions = np.append(sequences, more), np.append(positions, where)
            ids = np.append(ids, np.full(len(more), info.eos_id))
            confidence = np.append(confidence, np.full(len(more), np.nan, np.float32))
        started, forwarded, decided = self.marks
        told_ms = (time.perf_counter() - began) * 1e3
        return StepEvent(
            sequences=sequences.astype(np.int32),
            positions=positions.astype(np.int32),
            ids=ids.astype(np.int32),
            confidence=confidence,
            masks_left=int(tokens.masked.sum()),
            forward_ms=clock.ms(started, forwarded),
            decide_ms=clock.ms(forwarded, decided) + told_ms,
            **self.known,
        )

    def _check(self, found: np.ndarray, skips: bool) -> None:
        short = self.counts is not None and (found != self.counts).any()
        idle = self.view.real_host.any(1) & (found == 0)
        if short or (idle.any() and not skips):
            raise RuntimeError("nothing could be committed; the logits may not be finite numbers")
