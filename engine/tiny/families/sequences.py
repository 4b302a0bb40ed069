"""Arithmetic sequences: 16 to 40 numbers, each a fixed step above or below the one before."""

from __future__ import annotations

import random
from typing import ClassVar

from engine.tiny.family import Family, Problem, scaled

LARGEST = 199
STEPS = (2, 12)
QUESTIONS = (
    "Start at {a} and {verb} {d} each time. The last number is {z}.",
    "Write the numbers from {a} to {z}, every next one {d} {word} than the one before.",
)
VERBS = {1: ("add", "larger"), -1: ("subtract", "smaller")}


class Sequences(Family):
    """Arithmetic sequences; step and residue are the structure.

    So no sequence of the exam is part of one in the training data, nor contains one.
    """

    name: ClassVar[str] = "sequences"
    label: ClassVar[str] = "Arithmetic sequences"

    def draw(self, rng: random.Random, size: float = 1.0) -> Problem:
        """A sequence of numbers from 0 to 199, at most 40 of them."""
        step = rng.randint(*STEPS)
        most = min(40, LARGEST // step)
        count = scaled(rng, 4, min(16, most), most, size)
        low = rng.randint(0, LARGEST - step * (count - 1))
        sign = rng.choice((1, -1))
        numbers = [low + step * i for i in range(count)][::sign]
        verb, word = VERBS[sign]
        question = rng.choice(QUESTIONS).format(
            a=numbers[0], z=numbers[-1], d=step, verb=verb, word=word
        )
        terms = ", ".join(map(str, numbers))
        solution = f"The numbers are {terms}. The last one is {numbers[-1]}."
        structure = f"arithmetic sequence {sign * step} {low % step}"
        return Problem(self.name, question, solution, solution, structure)
