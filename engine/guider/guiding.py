"""Guiding: what a run needs of its guider."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from engine.guider.pair import Pair
from engine.guider.reader import Reads


@dataclass(frozen=True)
class Guiding:
    """A guider set on a run: `open` gives a fresh reader, one a sequence.

    `prompts` are the guider's ids of each sequence's prompt; `name` gives what to show of one
    of its tokens, `piece` the text that it stands for, none for a special one; `about` as
    events.RunStarted.guider, `weight_bytes` what the guider itself takes.
    """

    pair: Pair
    prompts: tuple[tuple[int, ...], ...]
    open: Callable[[], Reads]
    name: Callable[[int], bytes]
    piece: Callable[[int], bytes]
    about: Mapping[str, Any] = field(default_factory=dict)
    weight_bytes: int = 0

    def alone(self, row: int) -> Guiding:
        """That of one sequence of a batch."""
        return replace(self, prompts=self.prompts[row : row + 1])
