"""Short arithmetic word problems with worked answers: training data, exam and scoring.

Problems are drawn from a `random.Random`, so a seed reproduces them. Whether a problem belongs to
the exam depends on its text alone (`held_out`), not on the seed: training skips those problems,
the exam uses no others. Numbers are written with a space before them, so that each of 0 to 199 is
one token.
"""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Callable
from dataclasses import dataclass

from engine.tiny import phrases, scenes
from engine.tiny.scenes import Scene

MAX_PIECES = 58  # of a solution: words, numbers and punctuation marks, about one token each
FORMS = ("turns", "text")  # how worked examples precede a problem, see `few_shot`
_NUMBER = re.compile(r"\d+")
_WORKED = re.compile(r"\nAnswer: (.*)")
_STOP = re.compile(r"<\|[a-z_]+\|>")

Message = dict[str, str]


@dataclass(frozen=True)
class Problem:
    """A word problem with a worked answer, the final number and the number of calculations."""

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
    """Draw a problem with a number of calculations within `operations` (inclusive, 1 to 5).

    `wordings` limits the sentence forms of each calculation (None: all of them).
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
            if count_pieces(solution) <= MAX_PIECES:
                return Problem(question, solution, scene.steps[-1].result, len(scene.steps))


def held_out(question: str) -> bool:
    """Whether a problem belongs to the exam: one in ten, by a hash of its text."""
    return hashlib.sha256(question.encode()).digest()[0] % 10 == 0


def draw(
    seed: int,
    count: int,
    exam: bool = True,
    operations: tuple[int, int] = (1, 3),
    wordings: int | None = 2,
    ranges: scenes.Ranges = scenes.SMALL,
) -> list[Problem]:
    """Draw `count` different problems, all from the exam or all from the training data."""
    rng = random.Random(seed)
    found: dict[str, Problem] = {}
    while len(found) < count:
        one = problem(rng, operations, wordings, ranges)
        if held_out(one.question) == exam:
            found.setdefault(one.question, one)
    return list(found.values())


def chat(one: Problem) -> list[Message]:
    """The prompt without worked examples: one user message."""
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
    """A prompt with worked examples from the training data, as many as fit in `target` tokens.

    `length` counts the tokens of a list of messages. `form` is "turns" (each example is a user
    and an assistant message) or "text" (one user message with all of them). Raises ValueError
    for another form.
    """
    if form not in FORMS:
        raise ValueError(f"form must be one of {FORMS}, not {form!r}")
    shots: list[Problem] = []
    messages, too_long = _arrange(shots, one, form), 0
    while too_long < 4:  # a shorter example may still fit
        extra = problem(rng, operations, wordings, ranges)
        if held_out(extra.question):
            continue
        longer = _arrange([*shots, extra], one, form)
        if length(longer) > target:
            too_long += 1
            continue
        shots.append(extra)
        messages = longer
    return messages


def worked_prompt(rng: random.Random, one: Problem, shots: int) -> str:
    """A problem after `shots` worked examples, as one text."""

    def count(messages: list[Message]) -> int:
        return sum(message["content"].count("Question: ") for message in messages)

    return few_shot(rng, one, count, max(shots + 1, 1), form="text")[0]["content"]


def exam_questions(problems: int, seed: int, shots: int = 0) -> list[tuple[Problem, str]]:
    """Held-out problems of a seed with their prompts, see `worked_prompt`."""
    rng = random.Random(seed)
    return [(one, worked_prompt(rng, one, shots)) for one in draw(seed, problems)]


def worked_answers(text: str) -> list[tuple[int, int]]:
    """Character ranges [start, end) of the worked answers in a prompt of the "text" form."""
    return [found.span(1) for found in _WORKED.finditer(text)]


def final_number(text: str) -> int | None:
    """The last whole number before the first special token, or None."""
    found = _NUMBER.findall(_STOP.split(text, maxsplit=1)[0])
    return int(found[-1]) if found else None


def correct(text: str, one: Problem) -> bool:
    """Whether the final number of a generated answer is right."""
    return final_number(text) == one.answer


def count_pieces(text: str) -> int:
    """The number of words, numbers and punctuation marks: about the tokens of a text."""
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
    """Word a scene: one sentence per step, the first `loose` steps shuffled, then a closing."""
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
