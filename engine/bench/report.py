"""Figures: what trials come to, as plain data and as a table.

Captures: captured forwards beside eager ones, and how often the host waits, as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from engine.bench import suite
from engine.bench.floor import Product
from engine.bench.trial import Trial
from engine.core.events import KINDS
from engine.core.tables import aligned

HEAD = (
    "method", "forwards", "ms a forward", "speed-up", "x floor", "x own", "full step",
    "partial step", "reuse step", "tokens/s", "GFLOP/s", "GB/s", "cache", "peak memory",
)  # fmt: skip
NOT_RUN = "not run"


def rows(trials: Sequence[Trial]) -> list[dict[str, Any]]:
    """A row a trial; ratios are medians of the rounds' ratios, with their range.

    `speed_up` is the time of the case beside over its own; `tokens_per_s` counts every position
    that was committed; `same` is the share of the answer's tokens that are those of the case
    beside; bytes a second are those of weights, keys and values, read once by each product;
    `waits` are those of the host for a GPU (engine.bench.host_waits).
    """
    known = {(one.case.group, one.case.name): one for one in reversed(trials)}
    first = {one.case.group: one for one in reversed(trials)}
    out = []
    for one in trials:
        case = one.case
        base = known[case.group, case.beside] if case.beside else first[case.group]
        out.append(_row(one, base))
    return out


def _row(one: Trial, base: Trial) -> dict[str, Any]:
    case, done = one.case, one.rehearsal
    start = len(case.prompts[0])
    totals = [sum(times) for times in one.runs]
    took, count = median(totals), len(done.kinds)
    answers = done.ids[:, start:], base.rehearsal.ids[:, start:]
    products = [product for step in done.products for product in step]
    speeds = [sum(a) / sum(b) for a, b in zip(base.runs, one.runs, strict=True)]
    return {
        "group": case.group, "name": case.name, "beside": case.beside,
        "spec": case.spec.to_dict(), "prompt_tokens": start, "rounds": len(totals), "nfe": count,
        "ms": 1e3 * took / count,
        "ms_range": [1e3 * edge(totals) / count for edge in (min, max)],
        "speed_up": median(speeds), "speed_up_range": [min(speeds), max(speeds)],
        "same": float((answers[0] == answers[1]).mean()) if _alike(answers) else None,
        "floor": _floor(one, one.floors), "own": _floor(one, one.owns),
        "kinds": {kind: _kind(one, kind) for kind in KINDS if kind in done.kinds},
        "tokens_per_s": done.positions / took,
        "gflops_per_s": sum(done.flops) / took / 1e9,
        "gbytes_per_s": _read(products) / took / 1e9 if products else None,
        "cache_bytes": done.cache_bytes, "peak_bytes": done.peak_bytes, "waits": done.waits,
    }  # fmt: skip


def _alike(answers: Sequence[Any]) -> bool:
    return bool(answers[0].shape == answers[1].shape)


def _read(products: Sequence[Product]) -> int:
    return sum(product.read for product in products)


def _floor(one: Trial, floors: Sequence[Sequence[float]]) -> dict[str, Any] | None:
    """The bare products: ms a forward, and how many times as long the run takes."""
    if not floors:
        return None
    ratios = [sum(a) / sum(b) for a, b in zip(one.runs, floors, strict=True)]
    took = median(map(sum, floors)) / len(one.rehearsal.kinds)
    return {"ms": 1e3 * took, "ratio": median(ratios), "range": [min(ratios), max(ratios)]}


def _kind(one: Trial, kind: str) -> dict[str, Any]:
    """Steps of a kind: their median time over the floor's, and what such a step takes."""
    done = one.rehearsal
    steps = [index for index, name in enumerate(done.kinds) if name == kind]

    def middle(rounds: Sequence[Sequence[float]]) -> list[float]:
        return [median(times[index] for index in steps) for times in rounds]

    runs = middle(one.runs)
    ratios = [
        [a / b for a, b in zip(runs, middle(floors), strict=False)]
        for floors in (one.floors, one.owns)
    ]
    row = {
        "steps": len(steps),
        "ms": 1e3 * median(runs),
        "floor": median(ratios[0]) if ratios[0] else None,
        "own": median(ratios[1]) if ratios[1] else None,
        "flops": median(done.flops[index] for index in steps),
    }
    if done.products:
        taken = [done.products[index] for index in steps]
        weights = [[p for p in step if p.weight is not None] for step in taken]
        row["bytes"] = median(map(_read, taken))
        row["weight_bytes"] = median(map(_read, weights))
    return row


def cells(row: Mapping[str, Any] | None) -> list[str]:
    """What a table shows of a row beside its name; None: it was not run."""
    if row is None:
        return [NOT_RUN, *[""] * (len(HEAD) - 2)]
    low, high = row["ms_range"]
    speed = f"{row['speed_up']:.2f}x" + (f" of {row['beside']}" if row["beside"] else "")
    return [
        f"{row['nfe']}",
        f"{row['ms']:.2f} ({low:.2f} to {high:.2f})",
        speed,
        *(f"{found['ratio']:.2f}" if found else "" for found in (row["floor"], row["own"])),
        *(_step(row["kinds"].get(kind)) for kind in ("full", "partial", "reuse")),
        f"{row['tokens_per_s']:.1f}",
        f"{row['gflops_per_s']:.1f}",
        "" if row["gbytes_per_s"] is None else f"{row['gbytes_per_s']:.2f}",
        f"{row['cache_bytes'] / 1e6:.1f} MB",
        f"{row['peak_bytes'] / 1e6:.0f} MB" if row["peak_bytes"] else "",
    ]


def _step(kind: Mapping[str, Any] | None) -> str:
    if kind is None:
        return ""
    floors = ", ".join(f"{kind[name]:.2f}" for name in ("floor", "own") if kind[name])
    return f"{kind['ms']:.2f}" + (f" ({floors})" if floors else "")


def table(names: Sequence[tuple[str, str]], found: Sequence[Mapping[str, Any]]) -> str:
    """Markdown: a line for every (group, name), "not run" where no row is found."""
    known = {(row["group"], row["name"]): row for row in found}
    groups = any(group for group, _ in names)
    head = ["", *HEAD] if groups else list(HEAD)
    lines = [head, ["---"] * len(head)]
    for group, name in names:
        shown = [group, name] if groups else [name]
        lines.append([*shown, *cells(known.get((group, name)))])
    return aligned(lines)


CAPTURED_HEAD = (
    "model", "cache", "captured", "eager", "gain", "same tokens", "waits inside a step",
    "waits a step",
)  # fmt: skip


def captured_table(found: Sequence[Mapping[str, Any]]) -> str:
    """Markdown of the rows of engine.bench.report that were run both ways; ms a forward."""
    known = {(row["group"], row["name"]): row for row in found}
    lines: list[list[str]] = [list(CAPTURED_HEAD), ["---"] * len(CAPTURED_HEAD)]
    for group in suite.GPU_MODELS.values():
        for cache in suite.CAPTURED:
            rows = [known.get((group, name)) for name in (cache, f"{cache}, eager")]
            lines.append([group, cache, *_captured_cells(*rows)])
    return aligned(lines)


def _captured_cells(
    captured: Mapping[str, Any] | None, eager: Mapping[str, Any] | None
) -> list[str]:
    if captured is None or eager is None:
        return [NOT_RUN, *[""] * (len(CAPTURED_HEAD) - 3)]
    waits = captured["waits"]
    return [
        f"{captured['ms']:.2f}",
        f"{eager['ms']:.2f}",
        f"{1 / eager['speed_up']:.2f}x",
        "" if eager["same"] is None else f"{eager['same']:.1%}",
        *(("", "") if waits is None else (f"{count:.2f}" for count in waits)),
    ]
