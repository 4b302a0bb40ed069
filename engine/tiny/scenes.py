"""The situations of the word problems: question sentences and the calculations of the answer."""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import pairwise

from engine.tiny import phrases
from engine.tiny.phrases import PEOPLE, THINGS, Person


@dataclass(frozen=True)
class Ranges:
    """Inclusive bounds of the numbers drawn and of the results.

    `limit` is the largest result of a step, `total` the largest sum of two people.
    """

    limit: int = 60
    total: int = 99
    start: tuple[int, int] = (4, 30)
    change: tuple[int, int] = (2, 12)
    packs: tuple[int, int] = (2, 5)
    in_pack: tuple[int, int] = (2, 9)
    price: tuple[int, int] = (2, 6)
    bought: tuple[int, int] = (2, 5)
    off: tuple[int, int] = (2, 5)
    notes: tuple[int, ...] = (20, 30, 40, 50, 60)


RANGES = Ranges()


@dataclass(frozen=True)
class Step:
    """A calculation of a solution, `left sign right = result`, and its possible wordings."""

    left: int
    sign: str
    right: int
    result: int
    forms: tuple[str, ...]
    person: Person
    thing: str


@dataclass(frozen=True)
class Scene:
    """A problem whose solution is not worded yet: question, steps in order, closing sentences.

    `opening` repeats what is given at the start; it is empty if the first step says it.
    """

    question: list[str]
    steps: list[Step]
    closings: tuple[str, ...]
    kind: str
    opening: str = ""
    loose: int = 0  # number of first steps whose order is free

    def structure(self) -> str:
        """Kind, signs and numbers of the steps in order: the problem without its words."""
        steps = " ".join(f"{step.left}{step.sign}{step.right}" for step in self.steps)
        return f"{self.kind} {steps}"


def _change(rng: random.Random, value: int, ranges: Ranges) -> tuple[str, str, int, int]:
    """Draw an operation whose result is within bounds: (name, sign, operand, result)."""
    while True:
        name = rng.choices(("add", "sub", "times", "half"), (7, 7, 3, 3))[0]
        if name == "add":
            b = rng.randint(*ranges.change)
            out = ("add", "+", b, value + b)
        elif name == "sub":
            b = rng.randint(*ranges.change)
            out = ("sub", "-", b, value - b)
        elif name == "times":
            b = rng.randint(2, 3)
            out = ("times" if b == 2 else "triple", "x", b, value * b)
        else:
            if value % 2:
                continue
            out = ("half", "/", 2, value // 2)
        if 1 <= out[3] <= ranges.limit:
            return out


def running(rng: random.Random, count: int, ranges: Ranges) -> Scene:
    """One person whose number of things changes with each event."""
    who, friend = rng.sample(PEOPLE, 2)
    thing = rng.choice(THINGS)
    names = {"N": who.name, "P": who.pronoun.capitalize(), "p": who.pronoun, "o": who.objective,
             "F": friend.name, "t": thing}  # fmt: skip
    question, steps, opening = [], [], ""
    if rng.random() < 0.4:
        k, m = rng.randint(*ranges.packs), rng.randint(*ranges.in_pack)
        question.append(rng.choice(phrases.PACKS).format(k=k, m=m, **names))
        steps.append(Step(k, "x", m, k * m, phrases.SOLVE_PACKS, who, thing))
        value = k * m
    else:
        value = rng.randint(*ranges.start)
        question.append(rng.choice(phrases.STARTS).format(a=value, **names))
        opening = phrases.STARTS[1].format(a=value, **names)
    while len(steps) < count:
        name, sign, b, result = _change(rng, value, ranges)
        question.append(rng.choice(phrases.EVENTS[name]).format(b=b, **names))
        steps.append(Step(value, sign, b, result, phrases.SOLVE_EVENTS[name], who, thing))
        value = result
    question.append(rng.choice(phrases.ASK_NOW).format(**names))
    return Scene(question, steps, phrases.CLOSE_HAS, "running", opening)


def compare(rng: random.Random, count: int, ranges: Ranges) -> Scene | None:
    """People compared one after another, sometimes with a sum; None if it is too large."""
    people = rng.sample(PEOPLE, count + 1)
    thing = rng.choice(THINGS)
    value = rng.randint(*ranges.start)
    together = count > 1 and rng.random() < 0.4
    opening = phrases.STARTS[0].format(N=people[0].name, a=value, t=thing)
    question = [opening]
    steps: list[Step] = []
    for before, who in pairwise(people[: count + 1 - together]):
        name, sign, b, result = _change(rng, value, ranges)
        form = rng.choice(phrases.RELATIONS[name])
        question.append(form.format(N=who.name, B=before.name, b=b, t=thing))
        steps.append(Step(value, sign, b, result, phrases.SOLVE_RELATIONS[name], who, thing))
        value = result
    names = {"N": steps[-1].person.name, "B": people[count - 1 - together].name, "t": thing}
    if not together:
        question.append(phrases.ASK_HAS.format(**names))
        return Scene(question, steps, phrases.CLOSE_HAS, "compare", opening)
    question.append(phrases.ASK_TOGETHER.format(**names))
    last = steps[-1]
    total = last.left + value
    if total > ranges.total:
        return None
    steps.append(Step(last.left, "+", value, total, phrases.SOLVE_TOTAL, last.person, thing))
    return Scene(question, steps, phrases.CLOSE_PLAIN, "together", opening)


def shop(rng: random.Random, count: int, ranges: Ranges) -> Scene | None:
    """Goods with prices, perhaps their sum, a discount or change. None if out of bounds."""
    who = rng.choice(PEOPLE)
    kinds = (count + 1) // 2
    goods = rng.sample(THINGS, kinds)
    prices = [rng.randint(*ranges.price) for _ in goods]
    counts = [rng.randint(*ranges.bought) for _ in goods]
    names = {"N": who.name, "P": who.pronoun.capitalize(), "p": who.pronoun}
    question = [
        phrases.PRICE.format(t=t.capitalize(), a=a) for t, a in zip(goods, prices, strict=True)
    ]
    bought = " and ".join(f"{n} {t}" for n, t in zip(counts, goods, strict=True))
    question.append(phrases.BUY.format(g=bought, **names))
    steps = [
        Step(n, "x", a, n * a, phrases.SOLVE_PRICE, who, t)
        for n, a, t in zip(counts, prices, goods, strict=True)
    ]
    value = steps[0].result
    for step in steps[1:kinds]:
        right = step.result
        steps.append(Step(value, "+", right, value + right, phrases.SOLVE_TOTAL, who, "dollars"))
        value += right
    if len(steps) == count:
        question.append(phrases.ASK_COST.format(**names))
    elif rng.random() < 0.5:
        off = rng.randint(*ranges.off)
        question.append(phrases.OFF.format(b=off))
        question.append(phrases.ASK_COST.format(**names))
        steps.append(Step(value, "-", off, value - off, phrases.SOLVE_OFF, who, "dollars"))
    else:
        note = rng.choice([n for n in ranges.notes if n > value] or [0])
        question.append(phrases.NOTE.format(b=note, **names))
        question.append(phrases.ASK_CHANGE.format(**names))
        steps.append(Step(note, "-", value, note - value, phrases.SOLVE_CHANGE, who, "dollars"))
    ok = all(1 <= step.result <= ranges.limit for step in steps)
    scene = Scene(question, steps, phrases.CLOSE_COST, "shop", loose=kinds)
    return scene if ok else None


KINDS = (running, running, compare, shop)  # `running` is drawn twice as often
