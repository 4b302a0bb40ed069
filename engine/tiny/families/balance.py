"""Running balances: amounts that are paid in and taken out, with the balance after each."""

from __future__ import annotations

import random
from typing import ClassVar

from engine.tiny import phrases
from engine.tiny.family import Family, Problem, scaled

LARGEST = 99
AMOUNTS = (2, 30)
QUESTIONS = (
    "The account of {N} holds {a} dollars. Payments: {p}. What is the balance after each of them?",
    "{N} has {a} dollars in the bank. Then: {p}. Work out every balance.",
)
WORDS = ((" in {b}", " out {b}"), (" plus {b}", " minus {b}"))
CLOSING = "{N} has {v} dollars in the end. The answer is {v}."


class Balance(Family):
    """An account's balance after each of 6 to 10 payments."""

    name: ClassVar[str] = "balance"
    label: ClassVar[str] = "Running balance"

    def draw(self, rng: random.Random, size: float = 1.0) -> Problem:
        """A start and 6 to 10 payments; no balance is below 1 or above 99."""
        count = scaled(rng, 2, 6, 10, size)
        value = start = rng.randint(10, 80)
        changes: list[int] = []
        lines: list[str] = []
        while len(changes) < count:
            change = rng.choice((-1, 1)) * rng.randint(*AMOUNTS)
            if 1 <= value + change <= LARGEST:
                sign = "+" if change > 0 else "-"
                lines.append(f"{value} {sign} {abs(change)} = {value + change}.")
                value += change
                changes.append(change)
        who, words = rng.choice(phrases.PEOPLE).name, rng.choice(WORDS)
        payments = ",".join(words[change < 0].format(b=abs(change)) for change in changes).strip()
        question = rng.choice(QUESTIONS).format(N=who, a=start, p=payments)
        solution = " ".join(["Balance:", *lines, CLOSING.format(N=who, v=value)])
        structure = " ".join(["balance", str(start), *map("{:+}".format, changes)])
        return Problem(self.name, question, solution, str(value), structure)
