"""Example prompts from the embedded models' corpus, and the default race."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from engine.config.spec import RaceSpec, RunSpec
from engine.tiny.corpus import exam_questions

DEFAULT_SEED, MANY_SHOTS = 3, 8


def problem(seed: int, shots: int = 0) -> dict[str, Any]:
    """A word problem of the embedded corpus with `shots` worked examples, and its answer."""
    drawn, prompt = exam_questions(1, seed, shots)[0]
    return {"prompt": prompt, "answer": drawn.answer}


def examples() -> list[dict[str, Any]]:
    """Prompts that the page offers, each with `label`, `prompt` and `answer`."""
    label = f"Word problem {DEFAULT_SEED} after {MANY_SHOTS} worked examples"
    first = {"label": label} | problem(DEFAULT_SEED, MANY_SHOTS)
    seeds = (DEFAULT_SEED, 1, 2, 4)
    alone = [{"label": f"Word problem {seed} alone"} | problem(seed) for seed in seeds]
    return [first, *alone]


def default_race(model: str) -> RaceSpec:
    """Plain decoding against Fast-dLLM's dual cache with threshold 0.9."""
    base = RunSpec(model=model, prompt=problem(DEFAULT_SEED, MANY_SHOTS)["prompt"])
    knobs = {"threshold.threshold": 0.9}
    return RaceSpec(base, replace(base, unmasker="threshold", cache="dual", knobs=knobs))
