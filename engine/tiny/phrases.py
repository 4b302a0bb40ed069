"""The words of the corpus: people, things and sentence forms. Data only.

Fields of a form: N, B, F names; P, p pronoun; o object pronoun; t the things counted; a, b, k,
m numbers; S, s the subject of a worked step; e its equation; v the final number; g goods.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Person:
    """A name and its pronouns."""

    name: str
    pronoun: str
    objective: str


_WOMEN = ("Mia", "Ana", "Zoe", "Lily", "Emma", "Nora", "Ivy", "Sara")
_MEN = ("Tom", "Ben", "Leo", "Sam", "Max", "Omar", "Finn", "Jack")
PEOPLE = (
    *(Person(name, "she", "her") for name in _WOMEN),
    *(Person(name, "he", "him") for name in _MEN),
)
THINGS = (
    "apples", "pears", "plums", "nuts", "coins", "stamps", "cards", "shells",
    "books", "pens", "balls", "beads", "cookies", "marbles", "stickers", "keys",
)  # fmt: skip

STARTS = ("{N} has {a} {t}.", "{N} starts with {a} {t}.", "There are {a} {t} in the bag of {N}.")
PACKS = (
    "{N} has {k} boxes with {m} {t} each.",
    "{N} fills {k} bags with {m} {t} each.",
    "{N} gets {m} {t} a day for {k} days.",
)
EVENTS = {
    "add": ("{P} buys {b} more.", "{P} finds {b} more.", "{F} gives {o} {b} more."),
    "sub": ("{P} loses {b}.", "{P} sells {b}.", "{P} gives {b} to {F}."),
    "times": ("Then {p} doubles the number.", "Soon {p} has 2 times as many."),
    "triple": ("Then {p} triples the number.", "Soon {p} has 3 times as many."),
    "half": ("Then {p} gives half away.", "Then {p} loses half of them."),
}
ASK_NOW = ("How many {t} does {N} have now?", "How many {t} does {N} have in the end?")

RELATIONS = {
    "add": ("{N} has {b} more than {B}.", "{N} has {b} {t} more than {B}."),
    "sub": ("{N} has {b} fewer than {B}.", "{N} has {b} {t} fewer than {B}."),
    "times": ("{N} has twice as many as {B}.", "{N} has 2 times as many as {B}."),
    "triple": ("{N} has 3 times as many as {B}.",),
    "half": ("{N} has half as many as {B}.",),
}
ASK_HAS = "How many {t} does {N} have?"
ASK_TOGETHER = "How many {t} do {B} and {N} have together?"

PRICE = "{t} cost {a} dollars each."
BUY = "{N} buys {g}."
OFF = "The shop takes {b} dollars off."
NOTE = "{P} pays with {b} dollars."
ASK_COST = "How much does {p} pay?"
ASK_CHANGE = "How much does {p} get back?"

SOLVE_PACKS = (
    "{S} has {e} {t}.",
    "First there are {e} {t}.",
)
SOLVE_EVENTS = {
    "add": (
        "{S} has {e} {t}.",
        "Adding {b} gives {e}.",
    ),
    "sub": (
        "{S} has {e} {t} left.",
        "Taking {b} away gives {e}.",
    ),
    "times": (
        "{S} has {e} {t}.",
        "Two times as many is {e}.",
    ),
    "triple": (
        "{S} has {e} {t}.",
        "Three times as many is {e}.",
    ),
    "half": (
        "{S} has {e} {t} left.",
        "Half of them is {e}.",
    ),
}
SOLVE_RELATIONS = {
    "add": (
        "{N} has {e} {t}.",
        "Adding {b} gives {e} for {N}.",
    ),
    "sub": (
        "{N} has {e} {t}.",
        "Taking {b} away gives {e} for {N}.",
    ),
    "times": (
        "{N} has {e} {t}.",
        "Two times as many is {e}.",
    ),
    "triple": (
        "{N} has {e} {t}.",
        "Three times as many is {e}.",
    ),
    "half": (
        "{N} has {e} {t}.",
        "Half as many is {e}.",
    ),
}
SOLVE_TOTAL = (
    "Together that is {e} {t}.",
    "In total we get {e}.",
)
SOLVE_PRICE = (
    "The {t} cost {e} dollars.",
    "{S} pays {e} dollars for the {t}.",
)
SOLVE_OFF = (
    "{S} pays {e} dollars.",
    "Taking {b} off gives {e}.",
)
SOLVE_CHANGE = (
    "{S} gets {e} dollars back.",
    "The change is {e}.",
)
CLOSE_PLAIN = ("The answer is {v}.", "So the answer is {v}.")
CLOSE_HAS = (*CLOSE_PLAIN, "So {N} has {v} {t}.")
CLOSE_COST = (*CLOSE_PLAIN, "So it is {v} dollars.")
