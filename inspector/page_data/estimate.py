"""The estimate of a lane in words: what its run would be on another model and device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from engine.core.tables import percentage
from inspector.page_data.sizes import counted, in_unit, seconds, size, three_digits

PARTS = {
    "projections": "projections", "attention": "attention", "ffn": "feed-forward", "head": "head",
    "selection": "selection of rows", "guider": "guider",
}  # fmt: skip
FLOPS = ((1e12, "TFLOPs"), (1e9, "GFLOPs"))
HEAD = ("Quantity", "A", "B")


def table(found: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Rows of a table, the name of a quantity and its value in each lane; HEAD names the columns.

    `found` are the estimates of lanes A and B (Session.estimate).
    """
    columns = [_quantities(one) for one in found]
    return [[name, *(column[name] for column in columns)] for name in columns[0]]


def summary(found: Sequence[Mapping[str, Any]]) -> str:
    """Both lanes in a sentence: the predicted times of a step and of the run."""
    a, b = (one["time"] for one in found)
    where = found[0]["device"]["title"]
    return (
        f"On {where} lane A would take {seconds(a['run_seconds'])} and lane B "
        f"{seconds(b['run_seconds'])}: {three_digits(a['run_seconds'] / b['run_seconds'])} times "
        "as fast (predicted, not measured)."
    )


def notes(found: Sequence[Mapping[str, Any]]) -> list[str]:
    """What does not fit, where the rates are from, and what is assumed in one of the lanes."""
    texts = [
        f"Lane {lane}: {one['memory']['problem']}."
        for lane, one in zip("AB", found, strict=True)
        if one["memory"]["problem"]
    ]
    texts.append(f"Rates of the device: {found[0]['device']['source']}.")
    lanes = [one["assumed"] for one in found]
    texts += [text for text in lanes[0] if text in lanes[1]]
    for lane, own, other in (("A", *lanes), ("B", *reversed(lanes))):
        texts += [f"Lane {lane}: {text}" for text in own if text not in other]
    return texts


def published(found: Sequence[Mapping[str, Any]]) -> list[str]:
    """The nearest published figure of each lane, with its conditions and what differs."""
    texts = []
    for lane, one in zip("AB", found, strict=True):
        near = one["published"]
        if near is None:
            continue
        differs = ", ".join(near["differs"]) or "nothing that is compared"
        texts.append(
            f"Lane {lane}, {near['method']}, {near['table']}: {near['figure']}. Its conditions: "
            f"{near['conditions']}; {near['gpu']}; {near['lengths']}; shots: {near['shots']}. "
            f"Differs, or not stated: {differs}."
        )
    return texts


def _quantities(found: Mapping[str, Any]) -> dict[str, str]:
    time, memory, whole = found["time"], found["memory"], max(found["flops"], 1)
    forwards = counted(found["forwards"], "forward")
    parts = [
        f"{PARTS[name]} {percentage(count / whole, 0)}"
        for name, count in found["flops_by_part"].items()
        if count / whole >= 0.005
    ]
    return {
        "Step, predicted": seconds(time["step_ms"] / 1e3),
        "Run, predicted": f"{seconds(time['run_seconds'])}, {forwards}",
        "Positions a second": three_digits(time["positions_per_s"]),
        "FLOPs a step": flops(found["flops_per_step"]),
        "FLOPs by part": ", ".join(parts),
        "Rows recomputed": f"{percentage(found['recomputed'])}, {found['rows']:.0f} enter a step",
        "Read and written a step": size(found["bytes_per_step"]),
        "Memory": f"{_weights(memory)}, caches {size(memory['cache_bytes'])}",
    }


def _weights(memory: Mapping[str, Any]) -> str:
    """The weights that are held and, of a model with experts, those that a token uses."""
    held, active = memory["weights_bytes"], memory.get("active_weights_bytes")
    used = f" ({size(active)} used by a token)" if active is not None and active < held else ""
    return f"weights {size(held)}{used}"


def flops(count: float) -> str:
    """A number of FLOPs with three significant digits, for example `2.27 TFLOPs`."""
    return in_unit(count, FLOPS, three_digits) or f"{three_digits(count / 1e6)} MFLOPs"
