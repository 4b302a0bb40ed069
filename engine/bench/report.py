"""Results of trials, as plain data and as Markdown tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from engine.bench.floor import Product
from engine.bench.trial import Case, Trial
from engine.core.events import KINDS
from engine.core.tables import markdown_table, percentage
from engine.models.kernels.choice import ROUTINES, Times, fastest
from engine.models.loading.memory_estimate import dtype_of, weights_bytes
from engine.serve.memory_budget import spec_run_bytes

HEAD = (
    "method", "forwards", "ms a forward", "speed-up", "x floor", "x own", "full step",
    "partial step", "reuse step", "positions/s", "GFLOP/s", "GB/s", "cache", "peak memory",
)  # fmt: skip
CAPTURED_HEAD = (
    "model", "cache", "captured", "eager", "gain", "same tokens", "waits inside a step",
    "waits a step",
)  # fmt: skip


def kernel_table(times: Times) -> str:
    """The routine chosen for each class of shapes, and the microseconds of all of them."""
    names = list(dict.fromkeys(name for found in ROUTINES.values() for name in found))
    head = ("operation", "format", "rows", "sizes", "chosen", *(f"{name}, us" for name in names))
    lines = [
        (
            shape.operation, shape.dtype, str(shape.rows), " x ".join(map(str, shape.sizes)),
            fastest(found), *(f"{1e6 * found[n]:.0f}" if n in found else "" for n in names),
        )
        for shape, found in sorted(times.items(), key=lambda item: item[0].key)
    ]  # fmt: skip
    return markdown_table(head, lines)


def rows(trials: Sequence[Trial]) -> list[dict[str, Any]]:
    """One row per trial; ratios are medians of the rounds' ratios, with their range.

    `speed_up` is the baseline's time over the case's own; `same` is the share of answer tokens
    equal to the baseline's; `positions_per_s` counts every committed position; bytes per second
    count weights, keys and values once for each product; `waits` are those of the host for a
    GPU (`engine.bench.host_waits`); `measured_routines` says whether routines were chosen by
    measurement, and `fused` lists the fused kernels.
    """
    known = {(one.case.group, one.case.name): one for one in reversed(trials)}
    first = {one.case.group: one for one in reversed(trials)}
    out = []
    for one in trials:
        case = one.case
        named = known[case.group, case.baseline] if case.baseline else first[case.group]
        out.append(_row(one, named))
    return out


def _row(one: Trial, baseline: Trial) -> dict[str, Any]:
    case, done = one.case, one.dry_run
    start = len(case.prompts[0])
    totals = [sum(times) for times in one.runs]
    total, count = median(totals), len(done.kinds)
    answer, other = done.ids[:, start:], baseline.dry_run.ids[:, start:]
    products = [product for step in done.products for product in step]
    speeds = [sum(a) / sum(b) for a, b in zip(baseline.runs, one.runs, strict=True)]
    return {
        "group": case.group, "name": case.name, "baseline": case.baseline,
        "spec": case.spec.to_dict(), "prompt_tokens": start, "rounds": len(totals), "nfe": count,
        "ms": 1e3 * total / count,
        "ms_range": [1e3 * min(totals) / count, 1e3 * max(totals) / count],
        "speed_up": median(speeds), "speed_up_range": [min(speeds), max(speeds)],
        "same": float((answer == other).mean()) if answer.shape == other.shape else None,
        "floor": _floor(one, one.floors), "own": _floor(one, one.own_floors),
        "kinds": {kind: _kind(one, kind) for kind in KINDS if kind in done.kinds},
        "positions_per_s": done.positions / total,
        "gflops_per_s": sum(done.flops) / total / 1e9,
        "gbytes_per_s": _bytes_read(products) / total / 1e9 if products else None,
        "cache_bytes": done.cache_bytes, "peak_bytes": done.peak_bytes,
        "planned_bytes": _planned_bytes(case), "waits": done.waits,
        "measured_routines": bool(case.model.adapter.kernels.times),
        "fused": sorted(case.model.adapter.kernels.fused),
    }  # fmt: skip


def _planned_bytes(case: Case) -> int:
    """Bytes of weights and run as the page plans them."""
    info, count = case.model.adapter.info, len(case.prompts)
    run = count * spec_run_bytes(case.spec, info, len(case.prompts[0]))
    return weights_bytes(info, dtype_of(case.spec)) + run


def _bytes_read(products: Sequence[Product]) -> int:
    return sum(product.bytes_read for product in products)


def _floor(one: Trial, floors: Sequence[Sequence[float]]) -> dict[str, Any] | None:
    """The bare products: ms per forward, and the ratio of the run's time to theirs."""
    if not floors:
        return None
    ratios = [sum(a) / sum(b) for a, b in zip(one.runs, floors, strict=True)]
    ms = 1e3 * median(map(sum, floors)) / len(one.dry_run.kinds)
    return {"ms": ms, "ratio": median(ratios), "range": [min(ratios), max(ratios)]}


def _kind(one: Trial, kind: str) -> dict[str, Any]:
    """Steps of one kind: median time, its ratios to both floors, and median FLOPs and bytes."""
    done = one.dry_run
    steps = [index for index, name in enumerate(done.kinds) if name == kind]

    def step_medians(rounds: Sequence[Sequence[float]]) -> list[float]:
        return [median(times[index] for index in steps) for times in rounds]

    def ratio(floors: Sequence[Sequence[float]]) -> float | None:
        if not floors:
            return None
        return median(a / b for a, b in zip(runs, step_medians(floors), strict=True))

    runs = step_medians(one.runs)
    row = {
        "steps": len(steps),
        "ms": 1e3 * median(runs),
        "floor": ratio(one.floors),
        "own": ratio(one.own_floors),
        "flops": median(done.flops[index] for index in steps),
    }
    if done.products:
        products = [done.products[index] for index in steps]
        weights = [[p for p in step if p.weight is not None] for step in products]
        row["bytes"] = median(map(_bytes_read, products))
        row["weight_bytes"] = median(map(_bytes_read, weights))
    return row


def table(found: Sequence[Mapping[str, Any]]) -> str:
    """Markdown with one line per row, and a column of groups if there are any."""
    if any(row["group"] for row in found):
        lines = [(row["group"], *_cells(row)) for row in found]
        return markdown_table(("", *HEAD), lines)
    return markdown_table(HEAD, map(_cells, found))


def _cells(row: Mapping[str, Any]) -> list[str]:
    low, high = row["ms_range"]
    speed = f"{row['speed_up']:.2f}x" + (f" of {row['baseline']}" if row["baseline"] else "")
    return [
        row["name"],
        f"{row['nfe']}",
        f"{row['ms']:.2f} ({low:.2f} to {high:.2f})",
        speed,
        *(f"{found['ratio']:.2f}" if found else "" for found in (row["floor"], row["own"])),
        *(_kind_cell(row["kinds"].get(kind)) for kind in ("full", "partial", "reuse")),
        f"{_positions_per_s(row):.1f}",
        f"{row['gflops_per_s']:.1f}",
        "" if row["gbytes_per_s"] is None else f"{row['gbytes_per_s']:.2f}",
        f"{row['cache_bytes'] / 1e6:.1f} MB",
        f"{row['peak_bytes'] / 1e6:.0f} MB" if row["peak_bytes"] else "",
    ]


def _positions_per_s(row: Mapping[str, Any]) -> float:
    """The rate of a row, also of one that was saved under the column's former name."""
    name = "positions_per_s" if "positions_per_s" in row else "tokens_per_s"
    return float(row[name])


def _kind_cell(kind: Mapping[str, Any] | None) -> str:
    if kind is None:
        return ""
    floors = ", ".join(f"{kind[name]:.2f}" for name in ("floor", "own") if kind[name])
    return f"{kind['ms']:.2f}" + (f" ({floors})" if floors else "")


def captured_table(found: Sequence[Mapping[str, Any]]) -> str:
    """Markdown of the rows that ran both captured and eager; ms per forward."""
    eager = {(row["group"], row["name"]): row for row in found}
    pairs = [(row, eager.get((row["group"], f"{row['name']}, eager"))) for row in found]
    return markdown_table(CAPTURED_HEAD, [_captured_cells(a, b) for a, b in pairs if b])


def _captured_cells(captured: Mapping[str, Any], eager: Mapping[str, Any]) -> list[str]:
    waits = captured["waits"]
    return [
        captured["group"],
        captured["name"],
        f"{captured['ms']:.2f}",
        f"{eager['ms']:.2f}",
        f"{eager['ms'] / captured['ms']:.2f}x",
        "" if eager["same"] is None else percentage(eager["same"]),
        *(("", "") if waits is None else (f"{count:.2f}" for count in waits)),
    ]
