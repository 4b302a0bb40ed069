"""The bar of a method: its chosen setting beside its default, published and random settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from engine.advise.advisor import Advice
from engine.advise.measuring import Measured
from engine.advise.report import advice_document
from engine.advise.space import DEFAULT
from engine.batch.statistics import bootstrap_interval, discordant, mcnemar

BUDGET = 0.2  # share of the grid's runs that a search may use
RIVALS = ("default", "published", "random")  # the last two are origins of settings
Row = Mapping[str, Any]


def method_row(advice: Advice) -> dict[str, Any]:
    """A method's row of fronts.json: what `advice_document` says of it, and its bar."""
    document = advice_document(advice)
    (row,) = document["caches"]
    (found,) = advice.caches.values()
    front = [name for _, name in document["front"]]
    row |= {"front": front, "accepted": sorted(found.accepted)}

    def compare(chosen: str, rival: str) -> dict[str, Any]:
        return compared(found.held_back[chosen], found.held_back[rival])

    return dict(row) | {"bar": bar(row, compare)}


def bar(row: Row, compare: Callable[[str, str], dict[str, Any]]) -> dict[str, Any]:
    """The chosen setting against the best accepted one of each of the RIVALS.

    `row` is that of a method. `compare` returns what `compared` says of two settings, given the
    names of the chosen one and of the other. A comparison is None if no setting of the kind was
    accepted. `budget` is the share of the grid's runs that the search used. `met` says that a
    setting was chosen, that it is at least as fast as each of the others, and that the search used
    less than BUDGET.
    """
    share = row["runs"] / row["grid_runs"]
    own = next((one["name"] for one in row["held_back"] if one["chosen"]), None)
    if own is None:
        return {"budget": share, "met": False}
    accepted = [one for one in row["held_back"] if one["name"] in row["accepted"]]
    against: dict[str, Any] = {}
    for kind in RIVALS:
        rivals = [one for one in accepted if _is_of(kind, one, row["cache"])]
        best = max(rivals, key=lambda one: one["speed_up"], default=None)
        against[kind] = None if best is None else compare(own, best["name"])
    fast = all(one is None or one["ratio"] >= 1 for one in against.values())
    return against | {"budget": share, "met": fast and share < BUDGET}


def _is_of(kind: str, one: Row, cache: str) -> bool:
    """Whether a setting of the final test is one of a kind of rivals."""
    if kind == "default":
        return bool(one["name"] == f"{cache}: {DEFAULT}")
    return bool(one["from"] == kind)


def compared(chosen: Measured, other: Measured) -> dict[str, Any]:
    """The chosen setting against another one on the same problems.

    `ratio` is the median over the problems of the ratio of both speed-ups over plain decoding,
    `low` and `high` the 95 % bootstrap interval of the mean logarithm's power; `gained`, `lost` and
    `p` are those of McNemar's test.
    """
    both = list(zip(chosen.pairs, other.pairs, strict=True))
    ratios = np.array([(p.ms / own.ms) / (q.ms / two.ms) for (p, own), (q, two) in both])
    low, high = np.exp(bootstrap_interval(np.log(ratios).tolist()))
    gained, lost = discordant((two.right, own.right) for (_, own), (_, two) in both)
    return {
        "name": other.named.name, "ratio": float(np.median(ratios)), "low": float(low),
        "high": float(high), "gained": gained, "lost": lost, "p": mcnemar(gained, lost),
    }  # fmt: skip
