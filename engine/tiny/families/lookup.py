"""Look-up in a long table: quote the rows of some people and add the numbers of a column."""

from __future__ import annotations

import random
from itertools import accumulate
from typing import ClassVar

from engine.tiny import phrases
from engine.tiny.family import Family, Problem, scaled

NAMES = (
    *(person.name for person in phrases.PEOPLE),
    "Ada", "Amy", "Ben", "Carl", "Cora", "Dan", "Dora", "Ella", "Eric", "Erik", "Eva", "Fay",
    "Fred", "Gina", "Greg", "Hana", "Hugo", "Ian", "Ida", "Ines", "Jane", "Joel", "John", "Kai",
    "Kate", "Kim", "Lars", "Lea", "Lena", "Luca", "Lucy", "Mara", "Mark", "Nick", "Nina", "Olga",
    "Otto", "Paul", "Pia", "Rita", "Rob", "Rosa", "Ruth", "Sean", "Tara", "Theo", "Tina", "Uma",
    "Vera", "Will", "Yara", "Zack",
)  # fmt: skip
NUMBERS = (2, 30)
QUESTIONS = (
    "How many {t} do {g} have together?",
    "Add up the {t} of {g}.",
)


class Lookup(Family):
    """Tables of 34 to 60 rows; questions about 4 or 5 of their people."""

    name: ClassVar[str] = "lookup"
    label: ClassVar[str] = "Look-up in a long table"
    shared_text: ClassVar[bool] = True

    def draw(self, rng: random.Random, size: float = 1.0) -> Problem:
        """A table and a question about it."""
        return self.conversation(rng, 1, size)[0]

    def conversation(self, rng: random.Random, count: int, size: float = 1.0) -> list[Problem]:
        """`count` questions about one table, which only the first question contains."""
        rows = scaled(rng, 5, 34, 60, size)
        people = rng.sample(sorted(set(NAMES)), rows)
        things = rng.sample(phrases.THINGS, 2)
        table = {who: (rng.randint(*NUMBERS), rng.randint(*NUMBERS)) for who in people}
        head = "\n".join(["Table:", *(f"- {_row(who, things, table)}" for who in people)])
        problems = []
        for number in range(count):
            column = rng.randrange(2)
            asked = rng.sample(people, rng.randint(4, 5))
            values = [table[who][column] for who in asked]
            sums = list(accumulate(values))
            group = " and ".join(filter(None, (", ".join(asked[:-1]), asked[-1])))
            question = rng.choice(QUESTIONS).format(t=things[column], g=group)
            lines = [f"{_row(who, things, table)}." for who in asked]
            lines += [f"{a} + {b} = {a + b}." for a, b in zip(sums, values[1:], strict=False)]
            solution = " ".join(["Rows:", *lines, f"The answer is {sums[-1]}."])
            text = f"{head}\n{question}" if number == 0 else question
            structure = f"lookup {column} {' '.join(map(str, values))}"
            problems.append(Problem(self.name, text, solution, str(sums[-1]), structure))
        return problems


def _row(who: str, things: list[str], table: dict[str, tuple[int, int]]) -> str:
    cells = ", ".join(f"{n} {t}" for n, t in zip(table[who], things, strict=True))
    return f"{who}: {cells}"
