"""Account: the long text of a method's page, and the figures that its authors report."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Published:
    """One published figure, with the conditions that it holds under and where it stands.

    `a → b` is without the method, then with it.
    """

    figure: str
    conditions: str
    where: str


@dataclass(frozen=True)
class Account:
    """What a method recomputes and why that is thought safe, what it risks, where we depart.

    `prose` has two to five paragraphs, parted by blank lines, the last of them on where this engine
    departs from the released code. `published` may be empty: not every method has figures whose
    conditions are known.
    """

    prose: str
    published: tuple[Published, ...] = ()

    @property
    def text(self) -> str:
        """The paragraphs, a line each, parted by blank lines."""
        return "\n\n".join(" ".join(part.split()) for part in self.prose.strip().split("\n\n"))
