"""Look-up in a long table: quote the rows of some people and add their numbers."""

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
NUMBERS, ASKED = (2, 30), 5
QUESTIONS = (
    "How many {t} do {g} have together?",
    "Add up the {t} of {g}.",
)


class Lookup(Family):
    """Tables of 58 to 67 rows; questions about 5 of their people."""

    name: ClassVar[str] = "lookup"
    label: ClassVar[str] = "Look-up in a long table"
    shared_text: ClassVar[bool] = True

    def draw(self, rng: random.Random, size: float = 1.0) -> Problem:
        """A table and a question about it."""
        return self.conversation(rng, 1, size)[0]

    def conversation(self, rng: random.Random, count: int, size: float = 1.0) -> list[Problem]:
        """`count` questions about one table, which only the first question contains."""
        people = rng.sample(sorted(set(NAMES)), scaled(rng, 5, 58, 67, size))
        thing = rng.choice(phrases.THINGS)
        table = {who: rng.randint(*NUMBERS) for who in people}
        rows = {who: f"{who}: {number} {thing}" for who, number in table.items()}
        head = "\n".join(["Table:", *(f"- {rows[who]}" for who in people)])
        problems = []
        for number in range(count):
            asked = rng.sample(people, ASKED)
            values = [table[who] for who in asked]
            sums = list(accumulate(values))
            group = f"{', '.join(asked[:-1])} and {asked[-1]}"
            question = rng.choice(QUESTIONS).format(t=thing, g=group)
            lines = [f"{rows[who]}." for who in asked]
            lines += [f"{a} + {b} = {a + b}." for a, b in zip(sums, values[1:], strict=False)]
            solution = " ".join(["Rows:", *lines, f"The answer is {sums[-1]}."])
            text = f"{head}\n{question}" if number == 0 else question
            structure = f"lookup {' '.join(map(str, values))}"
            problems.append(Problem(self.name, text, solution, str(sums[-1]), structure))
        return problems
