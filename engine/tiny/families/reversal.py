"""Reversal: a list of words, written backwards."""

from __future__ import annotations

import random
from typing import ClassVar

from engine.tiny import phrases
from engine.tiny.family import Family, Problem, scaled

WORDS = (*phrases.THINGS, *(person.name for person in phrases.PEOPLE))
QUESTIONS = (
    "Write these words backwards: {w}.",
    "Reverse this list, from the last word to the first: {w}.",
)


class Reversal(Family):
    """Lists of 23 to 28 words; the words and their order are the structure."""

    name: ClassVar[str] = "reversal"
    label: ClassVar[str] = "Reversed lists"

    def draw(self, rng: random.Random, size: float = 1.0) -> Problem:
        """A list of different words."""
        count = scaled(rng, 3, 23, 28, size)
        words = rng.sample(WORDS, count)
        question = rng.choice(QUESTIONS).format(w=", ".join(words))
        solution = f"Backwards: {', '.join(words[::-1])}."
        return Problem(self.name, question, solution, solution, " ".join(["reversal", *words]))
