"""Arithmetic sequences: 20 numbers, each a fixed step above or below the one before."""

from __future__ import annotations

import random
from typing import ClassVar

from engine.tiny import phrases
from engine.tiny.family import Family, Problem, scaled

LARGEST, COUNT = 199, 20
STEPS = (2, 10)
QUESTIONS = (
    "Start at {a} and {verb} {d} each time. Write {n} numbers.",
    "Write {n} numbers: the first is {a}, and every next one is {d} {word} than the one before.",
    "{N} starts with {a} {t}. Each time there are {d} {more}. Write the first {n} numbers.",
)
VERBS = {1: ("add", "larger", "more"), -1: ("subtract", "smaller", "fewer")}


class Sequences(Family):
    """Arithmetic sequences; step and residue are the structure.

    So no sequence of the exam is part of one in the training data, nor contains one.
    """

    name: ClassVar[str] = "sequences"
    label: ClassVar[str] = "Arithmetic sequences"

    def draw(self, rng: random.Random, size: float = 1.0) -> Problem:
        """A sequence of numbers from 0 to 199, 20 at size 1, at least 4."""
        step, sign = rng.randint(*STEPS), rng.choice((1, -1))
        count = scaled(rng, 4, COUNT, COUNT, size)
        low = rng.randint(0, LARGEST - step * (count - 1))
        numbers = [low + step * i for i in range(count)][::sign]
        verb, word, more = VERBS[sign]
        question = rng.choice(QUESTIONS).format(
            N=rng.choice(phrases.PEOPLE).name, t=rng.choice(phrases.THINGS), a=numbers[0], d=step,
            n=count, verb=verb, word=word, more=more,
        )  # fmt: skip
        terms = ", ".join(map(str, numbers))
        solution = f"The numbers are {terms}. The last one is {numbers[-1]}."
        structure = f"arithmetic sequence {sign * step} {low % step}"
        return Problem(self.name, question, solution, solution, structure)
