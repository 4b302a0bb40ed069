"""Prompts of the exam: held-out problems, alone or after worked examples."""

from __future__ import annotations

import random

from engine.tiny import corpus
from engine.tiny.corpus import Message, Problem


def worked_prompt(rng: random.Random, problem: Problem, shots: int) -> str:
    """A problem as one text, after `shots` worked examples of the training class."""
    turns = corpus.few_shot(rng, problem, _questions, max(shots + 1, 1), form="text")
    return turns[0]["content"]


def exam(problems: int, seed: int, shots: int = 0) -> list[tuple[Problem, str]]:
    """`problems` held-out problems of a seed with their prompts."""
    rng = random.Random(seed)
    return [(one, worked_prompt(rng, one, shots)) for one in corpus.draw(seed, problems)]


def _questions(messages: list[Message]) -> int:
    return sum(message["content"].count("Question: ") for message in messages)
