"""The embedded models as the page shows them: their problems, training and limits."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from engine.config.answers import fitting_length
from engine.config.spec import RaceSpec, RunSpec
from engine.core.method_docs import read_method_docs
from engine.tiny import corpus
from engine.tiny.card import LIMITS
from engine.tiny.export import read_history, trained_families, training_minutes
from engine.tiny.family import count_pieces

DEFAULT_FAMILY, DEFAULT_SEED, SHOTS = "word_problems", 1, 2
BLOCK = 16  # of the default race
SEEDS = (DEFAULT_SEED, 2, 4, 6)  # of the examples without worked ones


def problem(seed: int, shots: int = 0, family: str = DEFAULT_FAMILY) -> dict[str, Any]:
    """An exam problem of a family after `shots` worked examples.

    `prompt` is its text, `answer` what is right (`engine.config.answers`) and `answer_tokens` the
    tokens of the worked answer with its end of text, in the embedded models' vocabulary. Raises
    ValueError for an unknown family.
    """
    drawn, prompt = corpus.exam_questions(1, seed, shots, family)[0]
    tokens = count_pieces(drawn.solution) + 1
    return {"prompt": prompt, "answer": drawn.answer, "answer_tokens": tokens}


def families_by_model(folders: Mapping[str, Path]) -> dict[str, list[str]]:
    """The families that each model was trained on, read from its folder."""
    return {name: trained_families(_history(path)) for name, path in folders.items()}


def _history(folder: Path) -> list[dict[str, Any]]:
    """The phases of a model's training; none if a file of that name is something else.

    Any folder may be listed, and its model runs without a history.
    """
    try:
        return read_history(folder)
    except ValueError:
        return []


def known_families(trained: Mapping[str, Sequence[str]], model: str = "") -> list[str]:
    """The families that a model knows, the default one first; `trained` is `families_by_model`.

    Those of all models together if the model has no history of training, or if none is named. Only
    the default one if none of them is an embedded model.
    """
    known = set(trained.get(model) or (family for one in trained.values() for family in one))
    return sorted(known or {DEFAULT_FAMILY}, key=lambda name: (name != DEFAULT_FAMILY, name))


def labelled_families(
    trained: Mapping[str, Sequence[str]], model: str = ""
) -> list[tuple[str, str]]:
    """Label and name of each of `known_families`."""
    known = corpus.families()
    return [(known[name].label, name) for name in known_families(trained, model)]


def examples(names: Sequence[str]) -> list[dict[str, Any]]:
    """Prompts of some families for the page, each with `label` and the fields of `problem`."""
    first, *others = names
    label = corpus.families()[first].label
    shown = [{"label": f"{label} {DEFAULT_SEED} after {SHOTS} worked examples"}
             | problem(DEFAULT_SEED, SHOTS, first)]  # fmt: skip
    for seed in SEEDS:
        shown.append({"label": f"{label} {seed} alone"} | problem(seed, 0, first))
    for name in others:
        shown.append({"label": corpus.families()[name].label} | problem(DEFAULT_SEED, 0, name))
    return shown


def default_race(model: str) -> RaceSpec:
    """Plain decoding against Fast-dLLM's dual cache with threshold 0.9.

    The answer has the length of the problem's own text, rounded up to a block.
    """
    drawn = problem(DEFAULT_SEED, SHOTS)
    length = fitting_length(drawn["answer_tokens"], BLOCK)
    base = RunSpec(
        model=model, prompt=drawn["prompt"], gen_length=length, block_length=BLOCK, steps=length
    )
    knobs = {"threshold.threshold": 0.9}
    return RaceSpec(base, replace(base, unmasker="threshold", cache="dual", knobs=knobs))


def describe_suite(folders: Mapping[str, Path], families: Iterable[str]) -> dict[str, Any]:
    """The families and the models that have a training history, as plain data.

    `families`: name, label, text (paragraphs) and a short example with its worked answer.
    `models`: name, families, tokens of the training, its `minutes` on a CPU and on a GPU, and
    `curve`, pairs of the training tokens so far (millions) and the loss. `limits`: what none of
    them can do.
    """
    histories = {name: _history(folder) for name, folder in folders.items()}
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
        "minutes": training_minutes(phases), "curve": curve,
    }  # fmt: skip
