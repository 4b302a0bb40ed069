"""What a problem family is: it draws problems with worked answers.

A problem's structure is what is left when names, things and wording are taken out: the kinds of
step, the numbers and their order. A hash of it decides whether a problem belongs to the exam, to
validation or to training (`Family.part`), so two problems that differ in words alone are always in
the same part.
"""

from __future__ import annotations

import hashlib
import random
import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

EXAM, VALIDATION, TRAINING, UNUSED = "exam", "validation", "training", "unused"
_TOKEN = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True)
class Problem:
    """A problem with its worked answer.

    `answer` is what a text is checked against (`engine.config.answers.is_right`): a number, or the
    whole text of a solution that is a list. `structure` is the problem without its words, with
    the kind of problem in front.
    """

    family: str
    question: str
    solution: str
    answer: str
    structure: str


class Family(ABC):
    """A kind of problem. A family is a module of engine.tiny.families with a subclass of this."""

    name: ClassVar[str]
    label: ClassVar[str]
    shared_text: ClassVar[bool] = False  # problems of a conversation need the text of the first

    @abstractmethod
    def draw(self, rng: random.Random, size: float = 1.0) -> Problem:
        """A random problem. `size` from 0 to 1 is the largest difficulty: 1 is the exam's."""

    def part(self, one: Problem) -> str:
        """EXAM for one structure in ten, VALIDATION for another one in ten, else TRAINING."""
        tenth = tenth_of(one.structure)
        return {0: EXAM, 1: VALIDATION}.get(tenth, TRAINING)

    def conversation(self, rng: random.Random, count: int, size: float = 1.0) -> list[Problem]:
        """`count` problems that follow each other in one prompt; by default independent ones."""
        return [self.draw(rng, size) for _ in range(count)]


def tenth_of(text: str) -> int:
    """A number from 0 to 9 that depends on a text alone."""
    return hashlib.sha256(text.encode()).digest()[0] % 10


def count_pieces(text: str) -> int:
    """The number of words, numbers and punctuation marks: about the tokens of a text."""
    return len(_TOKEN.findall(text))


def scaled(rng: random.Random, least: int, low: int, high: int, size: float) -> int:
    """A random whole number: `least` at size 0, from `low` to `high` at size 1.

    In between, both bounds lie on the way from `least` to those of size 1.
    """
    first, last = (round(least + (bound - least) * size) for bound in (low, high))
    return rng.randint(first, last)
