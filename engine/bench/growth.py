"""Growth: how the cost of a forward grows with prompt, answer, layers and batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from statistics import median
from typing import Any

from engine.bench.chart import Line, Panel
from engine.bench.models import BenchModels
from engine.bench.report import aligned
from engine.bench.suite import CPU_SHAPE, changed, speed_settings
from engine.bench.trial import Case, interleaved, seconds
from engine.config.spec import RunSpec

SHOWN = {"plain": "plain decoding", "dual": "dual cache", "dLLM-Cache": "dLLM-Cache 25/5/0.25"}
FEW = 4  # forwards a run; the first renews everything and is left out
LAYERS = "layers=12"


@dataclass(frozen=True)
class Point:
    """The sizes of a run, of which `axis` is the one that is varied."""

    axis: str
    sizes: Mapping[str, int] = field(hash=False)

    @property
    def value(self) -> int:
        """Where the point stands on its axis."""
        return self.sizes[self.axis]


BASE = {"prompt": 512, "answer": 128, "layers": 12, "batch": 1}
AXES: Mapping[str, Sequence[int]] = {
    "prompt": (64, 128, 256, 512, 1024, 2048),
    "answer": (64, 128, 256, 512),
    "layers": (3, 6, 12, 24),
    "batch": (1, 2, 4, 8),
}


def points() -> Iterator[Point]:
    """All points, axis by axis; the other sizes are those of BASE."""
    for axis, values in AXES.items():
        for value in values:
            yield Point(axis, BASE | {axis: value})


def case(models: BenchModels, point: Point, name: str, device: str) -> Case:
    """A method at a point."""
    sizes = point.sizes
    model = CPU_SHAPE.replace(LAYERS, f"layers={sizes['layers']}")
    answer = sizes["answer"]
    base = RunSpec(model=model, device=device, gen_length=answer, steps=answer)
    spec = changed(base, speed_settings()[SHOWN[name]])
    _, prompt = models.prompt(spec, sizes["prompt"])
    return Case(name, models.model(spec, len(prompt)), spec, [prompt] * sizes["batch"])


def measured(
    device: str, rounds: int, chosen: Sequence[Point] | None = None
) -> list[dict[str, Any]]:
    """Milliseconds of a forward at every point by every method, the methods in turn.

    Of each run the first forward, which renews everything, is left out, and the first round.
    """
    models, rows = BenchModels(), []
    for point in chosen or tuple(points()):
        cases = {name: case(models, point, name, device) for name in SHOWN}
        works = {name: partial(seconds, one, FEW) for name, one in cases.items()}
        for name, runs in interleaved(works, rounds + 1).items():
            took = [1e3 * median(times[1:]) for times in runs[1:]]
            rows.append(
                {"axis": point.axis, "value": point.value, "method": name, "ms": median(took)}
                | {"ms_range": [min(took), max(took)]}
            )
    return rows


def panels(rows: Sequence[Mapping[str, Any]]) -> list[Panel]:
    """A panel an axis, a line a method."""
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


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Markdown: a line a point, the methods side by side."""
    lines = [["axis", "value", *(f"{name}, ms" for name in SHOWN)], ["---"] * (2 + len(SHOWN))]
    for (axis, value), found in groupby(rows, key=lambda row: (row["axis"], row["value"])):
        lines.append([axis, str(value), *(f"{row['ms']:.2f}" for row in found)])
    return aligned(lines)
