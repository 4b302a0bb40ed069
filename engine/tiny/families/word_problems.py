"""Word problems: events, comparisons of people, and prices; chained ones and short ones."""

from __future__ import annotations

import random
from typing import ClassVar

from engine.tiny import phrases, scenes
from engine.tiny.family import EXAM, UNUSED, Family, Problem, count_pieces, scaled, tenth_of
from engine.tiny.scenes import Scene, Step

SHORT_PIECES = 58  # of a short solution: words, numbers and punctuation marks


class WordProblems(Family):
    """Chained word problems; the worked answer repeats what is given and ends with the number."""

    name: ClassVar[str] = "word_problems"
    label: ClassVar[str] = "Chained word problems"

    def draw(self, rng: random.Random, size: float = 1.0) -> Problem:
        """A problem of 2 to 6 calculations."""
        count = scaled(rng, 1, 2, 6, size)
        while True:
            scene = rng.choice(scenes.KINDS)(rng, count, scenes.RANGES)
            if scene is not None:
                break
        question, solution = " ".join(scene.question), _solution(rng, scene)
        return Problem(
            self.name, question, solution, str(scene.steps[-1].result), scene.structure()
        )


class ShortProblems(Family):
    """Word problems of 1 to 3 calculations, on which the first embedded models were examined.

    Their exam is split by text. Training uses none of these texts, also not as chained problems
    (BatchStream), nor a structure that the split by structure gives to the exam.
    """

    name: ClassVar[str] = "short_problems"
    label: ClassVar[str] = "Short word problems"

    def draw(self, rng: random.Random, size: float = 1.0) -> Problem:
        """A problem of 1 to 3 calculations, whatever the size."""
        count = rng.randint(1, 3)
        while True:
            kinds = scenes.KINDS if count > 1 else scenes.KINDS[:3]
            scene = rng.choice(kinds)(rng, count, scenes.RANGES)
            if scene is None:
                continue
            question, answer = " ".join(scene.question), str(scene.steps[-1].result)
            for _ in range(8):
                text = _short_solution(rng, scene)
                if count_pieces(text) <= SHORT_PIECES:
                    return Problem(self.name, question, text, answer, scene.structure())

    def part(self, one: Problem) -> str:
        """EXAM for one text in ten; a structure that is held out is UNUSED in any other text."""
        if tenth_of(one.question) == 0:
            return EXAM
        part = super().part(one)
        return UNUSED if part == EXAM else part


def _solution(rng: random.Random, scene: Scene) -> str:
    """The opening, a sentence for every calculation and two closing sentences."""
    named = rng.random() < 0.5
    text = [scene.opening] if scene.opening else []
    for step in scene.steps:
        equation = f"{step.left} {step.sign} {step.right} = {step.result}"
        text.append(_sentence(rng, step, named, equation))
    last = scene.steps[-1]
    names = {"v": last.result, "N": last.person.name, "t": last.thing}
    if len(scene.closings) > len(phrases.CLOSE_PLAIN):
        text.append(scene.closings[-1].format(**names))
    text.append(phrases.CLOSE_PLAIN[0].format(**names))
    return " ".join(text)


def _sentence(rng: random.Random, step: Step, named: bool, equation: str) -> str:
    who = step.person
    subject = who.name if named else who.pronoun.capitalize()
    return rng.choice(step.forms).format(
        S=subject, s=subject if named else who.pronoun, N=who.name, b=step.right, e=equation,
        t=step.thing,
    )  # fmt: skip


def _short_solution(rng: random.Random, scene: Scene) -> str:
    """A sentence for every calculation, the first `loose` ones shuffled, and one to close."""
    steps = list(scene.steps)
    if scene.loose > 1:
        head = steps[: scene.loose]
        rng.shuffle(head)
        steps = head + steps[scene.loose :]
    named = rng.random() < 0.5
    text = []
    for step in steps:
        left, right = step.left, step.right
        if step.sign in "+x" and rng.random() < 0.3:
            left, right = right, left
        text.append(_sentence(rng, step, named, f"{left} {step.sign} {right} = {step.result}"))
    last = steps[-1]
    closing = rng.choice(phrases.CLOSE_PLAIN)
    text.append(closing.format(v=last.result, N=last.person.name, t=last.thing))
    return " ".join(text)
