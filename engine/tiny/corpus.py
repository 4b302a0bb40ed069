"""The corpus of the embedded models: training data and exams drawn from the problem families.

Problems are drawn from a `random.Random`, so a seed reproduces them. Whether a problem belongs to
the exam, to validation or to training depends on its structure (`engine.tiny.family`), not on the
seed. Numbers are written with a space before them, so that each of 0 to 199 is one token.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable
from functools import cache

import engine.tiny.families
from engine.catalog import plugins
from engine.config.answers import is_right
from engine.tiny.family import EXAM, TRAINING, Family, Problem, count_pieces

FORMS = ("turns", "text")  # how worked examples precede a problem, see `arrange`
LONGEST_PROMPT = 840  # words, numbers and punctuation marks of a prompt with worked examples
MOST_IN_VAIN = 100_000  # draws in a row that give no new problem
_WORKED = re.compile(r"\nAnswer: (.*)")

Message = dict[str, str]


@cache
def families() -> dict[str, Family]:
    """Every family of engine.tiny.families by name, in alphabetical order."""
    known = plugins(engine.tiny.families, Family)  # type: ignore[type-abstract]
    return {name: family() for name, family in known.items()}


def family_named(name: str) -> Family:
    """A family by name; ValueError lists the names if it is unknown."""
    if name not in families():
        raise ValueError(f"family: {name!r} is unknown; choose from {', '.join(families())}")
    return families()[name]


def part_of(one: Problem) -> str:
    """EXAM, VALIDATION, TRAINING or UNUSED, see `engine.tiny.family`."""
    return families()[one.family].part(one)


def correct(text: str, one: Problem) -> bool:
    """Whether a generated text answers a problem."""
    return is_right(text, one.answer)


def draw(seed: int, count: int, part: str = EXAM, family: str = "word_problems") -> list[Problem]:
    """Draw `count` different problems of one family and one part.

    Raises ValueError for an unknown family, and naming `problems` if the family has fewer.
    """
    rng, source = random.Random(seed), family_named(family)
    found: dict[str, Problem] = {}
    in_vain = 0
    while len(found) < count:
        one = source.draw(rng)
        in_vain += 1
        if source.part(one) == part and one.question not in found:
            found[one.question], in_vain = one, 0
        elif in_vain > MOST_IN_VAIN:
            raise ValueError(
                f"problems: {family} has about {len(found)} different ones; ask for at most so many"
            )
    return list(found.values())


def short_example(family: str) -> Problem:
    """The problem with the shortest question among some of a family's training part."""
    return min(draw(1, 20, TRAINING, family), key=lambda one: len(one.question))


def shared_structures(exam: Iterable[Problem], training: Iterable[Problem]) -> set[str]:
    """The structures of exam problems that a training problem has as well: leaks of the split."""
    known = {one.structure for one in training}
    return {one.structure for one in exam if one.structure in known}


def chat(one: Problem) -> list[Message]:
    """The prompt without worked examples: one user message."""
    return [{"role": "user", "content": one.question}]


def arrange(shots: list[Problem], one: Problem, form: str) -> list[Message]:
    """A prompt with the worked examples `shots`.

    `form` is "turns" (each example is a user and an assistant message) or "text" (one user
    message with all of them). Raises ValueError for another form.
    """
    if form not in FORMS:
        raise ValueError(f"form must be one of {FORMS}, not {form!r}")
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


def worked_prompt(rng: random.Random, one: Problem, shots: int) -> str:
    """A problem after `shots` worked examples of its family's training part, as one text.

    There are fewer examples if the prompt would be longer than LONGEST_PROMPT, and none in a
    family whose problems share a text, since its prompts are long already.
    """
    source, drawn = families()[one.family], list[Problem]()
    prompt = one.question
    while len(drawn) < (0 if source.shared_text else shots):
        extra = source.draw(rng)
        if source.part(extra) != TRAINING:
            continue
        longer = arrange([*drawn, extra], one, "text")[0]["content"]
        if count_pieces(longer) > LONGEST_PROMPT:
            break
        drawn.append(extra)
        prompt = longer
    return prompt


def exam_questions(
    problems: int, seed: int, shots: int = 0, family: str = "word_problems"
) -> list[tuple[Problem, str]]:
    """Exam problems of a seed and a family with their prompts, see `worked_prompt`."""
    rng = random.Random(seed)
    drawn = draw(seed, problems, family=family)
    return [(one, worked_prompt(rng, one, shots)) for one in drawn]


def example_counts(questions: Iterable[tuple[Problem, str]]) -> str:
    """The number of worked examples in the prompts of `exam_questions`, in words."""
    counts = [len(worked_answers(prompt)) for _, prompt in questions]
    low, high = min(counts, default=0), max(counts, default=0)
    if not high:
        return "no worked examples"
    return f"{high if low == high else f'{low} to {high}'} worked example{'s' * (high > 1)}"


def worked_answers(text: str) -> list[tuple[int, int]]:
    """Character ranges [start, end) of the worked answers in a prompt of the "text" form."""
    return [found.span(1) for found in _WORKED.finditer(text)]
