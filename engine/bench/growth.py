"""How the time of a forward grows with prompt, answer, layers and batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import groupby
from statistics import median
from typing import Any

from engine.batch.settings import with_fields
from engine.bench.chart import Line, Panel
from engine.bench.models import BenchModels
from engine.bench.suite import CPU_SHAPE, speed_settings
from engine.bench.trial import Case, interleaved, step_seconds
from engine.config.spec import RunSpec
from engine.core.tables import markdown_table

# Name of a line to the row of the speed table that it draws.
SHOWN = {"plain": "plain decoding", "dual": "dual cache", "dLLM-Cache": "dLLM-Cache 25/5/0.25"}
STEPS = 4  # steps per run; the first one, a refresh, is left out
LAYERS = "layers=12"  # the part of CPU_SHAPE that the axis "layers" replaces
BASE = {"prompt": 512, "answer": 128, "layers": 12, "batch": 1}
AXES: Mapping[str, Sequence[int]] = {
    "prompt": (64, 128, 256, 512, 1024, 2048),
    "answer": (64, 128, 256, 512),
    "layers": (3, 6, 12, 24),
    "batch": (1, 2, 4, 8),
}


def case(models: BenchModels, sizes: Mapping[str, int], name: str, device: str) -> Case:
    """The case of a method, a key of SHOWN, at some sizes, see BASE."""
    model = CPU_SHAPE.replace(LAYERS, f"layers={sizes['layers']}")
    answer = sizes["answer"]
    base = RunSpec(model=model, device=device, gen_length=answer, steps=answer)
    spec = with_fields(base, speed_settings()[SHOWN[name]])
    _, prompt = models.prompt(spec, sizes["prompt"])
    return Case(name, models.model(spec, len(prompt)), spec, [prompt] * sizes["batch"])


def measure_growth(device: str, rounds: int) -> list[dict[str, Any]]:
    """Milliseconds per forward along each axis, the other sizes as in BASE, methods in turn.

    Neither the first step of a run nor the first round counts.
    """
    models, rows = BenchModels(), []
    for axis, value in [(axis, value) for axis, values in AXES.items() for value in values]:
        cases = {name: case(models, BASE | {axis: value}, name, device) for name in SHOWN}
        works = {name: partial(step_seconds, one, STEPS) for name, one in cases.items()}
        for name, runs in interleaved(works, rounds + 1).items():
            ms = [1e3 * median(times[1:]) for times in runs[1:]]
            rows.append(
                {"axis": axis, "value": value, "method": name, "ms": median(ms)}
                | {"ms_range": [min(ms), max(ms)]}
            )
    return rows


def panels(rows: Sequence[Mapping[str, Any]]) -> list[Panel]:
    """One panel per axis with one line per method."""
    titles = {"prompt": "prompt tokens", "answer": "answer tokens"}
    out = []
    for axis, of_axis in groupby(rows, key=lambda row: row["axis"]):
        found = list(of_axis)
        lines = [
            Line(name, [(r["value"], r["ms"]) for r in found if r["method"] == name])
            for name in SHOWN
        ]
        out.append(Panel(titles.get(axis, axis), lines))
    return out


def base_sizes() -> str:
    """The sizes BASE in words."""
    sizes = ", ".join(f"{axis} {value}" for axis, value in BASE.items())
    return f"{sizes} where they are not varied"


def findings(rows: Sequence[Mapping[str, Any]]) -> str:
    """One sentence an axis: what the largest value costs beside the value in BASE, by method."""
    sentences = []
    for axis, of_axis in groupby(rows, key=lambda row: row["axis"]):
        found = {(row["method"], row["value"]): row["ms"] for row in of_axis}
        most, base = max(value for _, value in found), BASE[axis]
        pairs = [(name, found[name, most], found.get((name, base))) for name in SHOWN]
        costs = ", ".join(f"{ms / of_base:.2f} ({name})" for name, ms, of_base in pairs if of_base)
        if costs and most != base:
            sentences.append(
                f"{axis.capitalize()} {most}: {most / base:g} times the {axis} of {base}, and a "
                f"forward takes this many times as long: {costs}."
            )
    return "\n".join(f"- {one}" for one in sentences)


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Markdown with one line per point, the methods side by side."""
    lines = [
        (axis, value, *(f"{row['ms']:.2f}" for row in found))
        for (axis, value), found in groupby(rows, key=lambda row: (row["axis"], row["value"]))
    ]
    return markdown_table(("axis", "value", *(f"{name}, ms" for name in SHOWN)), lines)
