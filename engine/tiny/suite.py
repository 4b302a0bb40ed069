"""What the page says of the embedded models: their problems, training and limits."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from engine.core.method_docs import read_method_docs
from engine.tiny import corpus
from engine.tiny.card import LIMITS
from engine.tiny.export import read_history, trained_families


def describe_suite(folders: Mapping[str, Path], families: Iterable[str]) -> dict[str, Any]:
    """The families and the models that have a training history, as plain data.

    `families`: name, label, text (paragraphs) and a short example with its worked answer.
    `models`: name, families, tokens and minutes of the training, and `curve`, pairs of the
    training tokens so far (millions) and the loss. `limits`: what none of them can do.
    """
    histories = {name: read_history(folder) for name, folder in folders.items()}
    return {
        "families": [_family(name) for name in families],
        "models": [_model(name, phases) for name, phases in histories.items() if phases],
        "limits": LIMITS,
    }


def _family(name: str) -> dict[str, str]:
    family = corpus.families()[name]
    path = Path(inspect.getfile(type(family))).with_suffix(".md")
    example = corpus.short_example(name)
    return {
        "name": name, "label": family.label, "text": read_method_docs(path)[name].description,
        "question": example.question, "answer": example.solution,
    }  # fmt: skip


def _model(name: str, phases: list[dict[str, Any]]) -> dict[str, Any]:
    curve, before = [], 0.0
    for phase in phases:
        for step, loss, _ in phase["curve"]:
            at = before + phase["tokens"] * step / max(phase["step"], 1)
            curve.append((round(at / 1e6, 2), loss))
        before += phase["tokens"]
    return {
        "name": name, "families": trained_families(phases), "tokens": round(before),
        "minutes": round(sum(phase["seconds"] for phase in phases) / 60), "curve": curve,
    }  # fmt: skip
