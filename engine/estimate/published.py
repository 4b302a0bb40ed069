"""The published figure whose conditions are nearest to those of an estimate."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from engine.cache.base import CachePolicy
from engine.catalog import make_policy, make_unmasker, method_doc, policies, unmaskers
from engine.config.spec import RunSpec
from engine.core.method_docs import PublishedFigure
from engine.unmask.base import DecodingRule

SPEED = re.compile(r"tokens/s|TFLOPs|FLOPs|times as fast|speed|seconds|\bs\b")
# Not a part of a name, such as LLaDA-8B or GSM8K.
NUMBER = re.compile(r"(?<![\w.,-])\d+(?:,\d{3})*(?:\.\d+)?(?![\w-])")


class NearestFigure(NamedTuple):
    """A published figure, the method it belongs to, what agrees and what differs, in words."""

    method: str
    figure: PublishedFigure
    agrees: tuple[str, ...]
    differs: tuple[str, ...]


def nearest_figure(spec: RunSpec, model: str, device: str) -> NearestFigure | None:
    """The nearest measured figure of the spec's cache, or of its unmasker without a cache.

    Nearest is the figure of which most hold: it states a speed or FLOPs, its model is `model` (a
    listed name), its GPU the title `device`, its lengths have the answer's length, and its
    conditions the values of the knobs. None if the authors' figures are not recorded.
    """
    found = [
        (_score(agrees), NearestFigure(method, figure, agrees, differs))
        for method, figure in _figures(spec)
        for agrees, differs in [_compared(figure, spec, model, device)]
    ]
    return max(found, key=lambda pair: pair[0])[1] if found else None


def _figures(spec: RunSpec) -> Iterator[tuple[str, PublishedFigure]]:
    """Measured figures and the titles of their methods: the spec's caches, or its unmasker.

    Plain decoding has those of all caches that state a figure without the cache, `a → b`.
    """
    chosen: list[type[CachePolicy] | type[DecodingRule]] = [
        policies()[name] for name in spec.cache.split("+") if name != "none"
    ]
    plain = not chosen and make_unmasker(spec).scheduled
    if not chosen:
        chosen = [*policies().values()] if plain else [unmaskers()[spec.unmasker]]
    for cls in chosen:
        for figure in method_doc(cls).published:
            measured = figure.gpu != "none" and not figure.conditions.startswith("Not this method")
            if measured and (not plain or "→" in figure.figure):
                yield f"before {cls.title}" if plain else cls.title, figure


def _compared(
    figure: PublishedFigure, spec: RunSpec, model: str, device: str
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The conditions that agree and those that differ or are not stated."""
    own = _conditions(figure, spec, model, device)
    agrees = tuple(words for words, same in own.items() if same)
    return agrees, tuple(words for words, same in own.items() if not same)


def _conditions(figure: PublishedFigure, spec: RunSpec, model: str, device: str) -> dict[str, bool]:
    stated = _numbers_in(re.sub(r"batch \d+", "", figure.conditions))
    short = _short_name(model)
    policy = make_policy(spec)
    wanted = [
        value
        for key, value in _numbers(policy).items()
        if f"{spec.cache}.{key}" in spec.knobs or value not in (0, 1)
    ]
    conditions = {
        "speed or FLOPs": bool(SPEED.search(figure.figure)),
        "family of the model": short.split("-")[0] in figure.conditions,
        "model": short in figure.conditions,
        "GPU": _chip(device) == _chip(figure.gpu),
        "length of the answer": spec.gen_length in _answer_lengths(figure.lengths),
    }
    return conditions | {f"value {value:g}": value in stated for value in wanted}


def _numbers_in(text: str) -> set[float]:
    """The numbers of a text; `1,024` is one."""
    return {float(number.replace(",", "")) for number in NUMBER.findall(text)}


def _answer_lengths(text: str) -> set[float]:
    """The lengths of the answer in those of a figure, such as `answer 1,024, blocks of 32`."""
    if not text.startswith("answer"):
        return set()
    return _numbers_in(re.sub(r"[\d,]+ steps", "", text.partition("block")[0]))


def _chip(gpu: str) -> str:
    """`A100` of `A100 80GB` or `A100 SXM 80 GB`."""
    return re.sub(r" SXM| \d+ ?GB", "", gpu)


def _numbers(policy: object) -> dict[str, float]:
    """The knobs of a policy that are numbers."""
    return {
        name: float(value)
        for name, value in vars(policy).items()
        if not name.startswith("_") and type(value) in (int, float)
    }


def _short_name(model: str) -> str:
    """LLaDA-8B-Instruct, LLaDA-1.5, Dream-7B-Base: how the papers call a listed model."""
    name = model.rpartition("/")[2]
    name = re.sub(r"-v\d+-(\w+)-(\d+B)", r"-\2-\1", name)
    return name


def _score(agrees: tuple[str, ...]) -> float:
    """Points for what agrees; whether it is a speed counts most, then the model."""
    weights = {"speed or FLOPs": 8.0, "family of the model": 4.0, "model": 2.0, "GPU": 2.0}
    return sum(weights.get(words, 1.5) for words in agrees)
