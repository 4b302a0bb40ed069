"""BlockGrid: the blocks of a canvas, which are decoded from left to right."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class BlockGrid:
    """`count` blocks of `size` positions from position `start` on.

    The first block of a model with full attention starts behind the prompt. The blocks of a model
    with block-causal attention lie on multiples of their size: the last tokens of the prompt share
    the first decoded block, and the canvas is rounded up to whole blocks.
    """

    start: int
    size: int
    count: int

    @classmethod
    def of(cls, prompt: int, answer: int, size: int, block_causal: bool) -> BlockGrid:
        """The grid of a prompt and an answer of so many tokens, the answer's at least."""
        start = prompt // size * size if block_causal else prompt
        return cls(start, size, -(-(prompt + answer - start) // size))

    @property
    def stop(self) -> int:
        """The end of the last block: the length of the canvas."""
        return self.start + self.size * self.count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> slice:
        """The positions of a block."""
        if not 0 <= index < self.count:
            raise IndexError(index)
        first = self.start + self.size * index
        return slice(first, first + self.size)

    def __iter__(self) -> Iterator[slice]:
        return (self[index] for index in range(self.count))
