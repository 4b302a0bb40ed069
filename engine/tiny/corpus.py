"""Short arithmetic word problems with worked answers, and the program that marks them.

Every problem is drawn from a `random.Random`, so a seed names it for ever. Whether a problem
belongs to the exam depends on its text alone (`held_out`), never on the seed: training skips
those problems, the exam uses nothing else. Numbers are written with a space before them, which
makes each of 0 to 199 one token. Nothing here needs torch.
"""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Callable
from dataclasses import dataclass

from engine.tiny import phrases, scenes
from engine.tiny.scenes import Scene

PIECES = 58  # longest solution, in words, numbers and marks (about one token each)
FORMS = ("turns", "text")  # how worked examples stand before a problem
_NUMBER = re.compile(r"\d+")
_WORKED = re.compile(r"\nAnswer: (.*)")
_STOP = re.compile(r"<\|[a-z_]+\|>")

Message = dict[str, str]


@dataclass(frozen=True)
class Problem:
    """One word problem: its text, a worked answer, the final number and the number of steps."""

    question: str
    solution: str
    answer: int
    operations: int


def problem(
    rng: random.Random,
    operations: tuple[int, int] = (1, 3),
    wordings: int | None = 2,
    ranges: scenes.Ranges = scenes.SMALL,
) -> Problem:
    """Draw one problem with a number of steps within `operations` (inclusive, 1 to 5).

    `wordings` limits the sentence forms used for each step (None: all of them).
    """
    count = rng.randint(*operations)
    while True:
        kinds = scenes.KINDS if count > 1 else scenes.KINDS[:3]
        scene = rng.choice(kinds)(rng, count, ranges)
        if scene is None:
            continue
        question = " ".join(scene.question)
        for _ in range(8):
            solution = _solution(rng, scene, wordings)
            if pieces(solution) <= PIECES:
                return Problem(question, solution, scene.steps[-1].result, len(scene.steps))


def held_out(question: str) -> bool:
    """Whether this text belongs to the exam: one class in ten of a hash, the same for ever."""
    return hashlib.sha256(question.encode()).digest()[0] % 10 == 0


def draw(
    seed: int,
    count: int,
    exam: bool = True,
    operations: tuple[int, int] = (1, 3),
    wordings: int | None = 2,
    ranges: scenes.Ranges = scenes.SMALL,
) -> list[Problem]:
    """Draw `count` different problems, all of the exam class or all of the training class."""
    rng = random.Random(seed)
    found: dict[str, Problem] = {}
    while len(found) < count:
        one = problem(rng, operations, wordings, ranges)
        if held_out(one.question) == exam:
            found.setdefault(one.question, one)
    return list(found.values())


def chat(one: Problem) -> list[Message]:
    """Return the zero-shot prompt: one user message."""
    return [{"role": "user", "content": one.question}]


def few_shot(
    rng: random.Random,
    one: Problem,
    length: Callable[[list[Message]], int],
    target: int,
    form: str = "turns",
    operations: tuple[int, int] = (1, 3),
    wordings: int | None = 2,
    ranges: scenes.Ranges = scenes.SMALL,
) -> list[Message]:
    """Put worked examples (never of the exam) before a problem, as many as fit `target` tokens.

    `length` counts the tokens of a list of messages. `form` is "turns" (each example is a user
    and an assistant message) or "text" (one user message with all of them).
    """
    if form not in FORMS:
        raise ValueError(f"form must be one of {FORMS}, not {form!r}")
    shots: list[Problem] = []
    messages, refused = _arrange(shots, one, form), 0
    while refused < 4:  # a shorter example may still fit
        extra = problem(rng, operations, wordings, ranges)
        if held_out(extra.question):
            continue
        longer = _arrange([*shots, extra], one, form)
        if length(longer) > target:
            refused += 1
            continue
        shots.append(extra)
        messages = longer
    return messages


def worked_answers(text: str) -> list[tuple[int, int]]:
    """Return the [start, end) of the worked answers within a prompt of the "text" form."""
    return [found.span(1) for found in _WORKED.finditer(text)]


def extract(text: str) -> int | None:
    """Return the last whole number before the first special token, or None."""
    found = _NUMBER.findall(_STOP.split(text, maxsplit=1)[0])
    return int(found[-1]) if found else None


def correct(text: str, one: Problem) -> bool:
    """Whether the final number of a generated answer is the right one."""
    return extract(text) == one.answer


def pieces(text: str) -> int:
    """Count words, numbers and marks: about the tokens of a text of this corpus."""
    return len(re.findall(r"\w+|[^\w\s]", text))


def _arrange(shots: list[Problem], one: Problem, form: str) -> list[Message]:
    if form == "turns":
        messages = []
        for shot in shots:
            messages.append({"role": "user", "content": shot.question})
            messages.append({"role": "assistant", "content": shot.solution})
        return messages + chat(one)
    if not shots:
        return chat(one)
    parts = [f"Question: {shot.question}\nAnswer: {shot.solution}" for shot in shots]
    return [{"role": "user", "content": "\n\n".join([*parts, f"Question: {one.question}"])}]


def _pick(rng: random.Random, forms: tuple[str, ...], wordings: int | None) -> str:
    return rng.choice(forms[:wordings])


def _solution(rng: random.Random, scene: Scene, wordings: int | None) -> str:
    """Word a scene: one sentence a step, the first `loose` steps in any order, then a closing."""
    steps = list(scene.steps)
    if wordings != 1 and scene.loose > 1:
        head = steps[: scene.loose]
        rng.shuffle(head)
        steps = head + steps[scene.loose :]
    named = wordings != 1 and rng.random() < 0.5
    text = []
    if wordings not in (1, 2) and rng.random() < 0.4:
        text.append(rng.choice(phrases.OPENINGS))
    for step in steps:
        left, right = step.left, step.right
        if wordings != 1 and step.sign in "+x" and rng.random() < 0.3:
            left, right = right, left
        who = step.person
        subject = who.name if named else who.pronoun.capitalize()
        form = _pick(rng, step.forms, wordings)
        text.append(
            form.format(
                S=subject, s=subject if named else who.pronoun, N=who.name, b=step.right,
                e=f"{left} {step.sign} {right} = {step.result}", t=step.thing,
            )
        )  # fmt: skip
    last = steps[-1]
    text.append(
        _pick(rng, scene.closings, wordings).format(v=last.result, N=last.person.name, t=last.thing)
    )
    return " ".join(text)
