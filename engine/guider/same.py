"""Same: drafts judged id by id, where model and guider share their vocabulary.

What engine.guider.alignment does for different vocabularies, in the same terms, with a token of
the draft for a token of the guider.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.guider.alignment import Accepted


@dataclass(frozen=True, slots=True)
class Spelt:
    """A response and a draft, of which `ids[first:]` is the draft up to its first end of text.

    `masked` [len(ids) - first] which of it is to be filled; `stops` says that the last id ends
    the text.
    """

    ids: tuple[int, ...]
    first: int
    masked: NDArray[np.bool_]
    stops: bool

    @property
    def judged(self) -> NDArray[np.bool_]:
        """Masked positions [len(ids)]: only their flags count."""
        return np.append(np.zeros(self.first, bool), self.masked)

    def covers(self) -> NDArray[np.int64]:
        """The tokens [start, end) that spell each position: itself."""
        places = np.arange(self.first, len(self.ids))
        return np.stack((places, places + 1), 1)

    def accept(self, ok: NDArray[np.bool_], most: int | None = None) -> Accepted:
        """Count the masked positions before the first that is not agreed to, at most `most`."""
        wrong = np.flatnonzero(self.masked & ~ok)
        k = int(self.masked[: wrong[0] if len(wrong) else len(ok)].sum())
        return Accepted(k if most is None else min(k, most), 0, 0)


@dataclass(frozen=True)
class Same:
    """Passes ids on; any of `stops` is written as `stop`, the guider's own, and ends the draft."""

    stops: tuple[int, ...]
    stop: int

    def align(self, prefix: Sequence[int], draft: Sequence[int], masked: Sequence[bool]) -> Spelt:
        """See Alignment.align; the draft begins with a masked position."""
        end = next((i for i, token in enumerate(draft) if token in self.stops), None)
        kept = list(draft if end is None else draft[:end])
        kept += [] if end is None else [self.stop]
        flags = np.array(masked[: len(kept)], bool)
        return Spelt((*prefix, *kept), len(prefix), flags, end is not None)
