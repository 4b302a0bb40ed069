"""The criterion of a method: its chosen setting against its default, published and random ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from engine.advise.advisor import Advice
from engine.advise.measuring import Measured
from engine.advise.report import advice_document
from engine.advise.search_space import DEFAULT
from engine.batch.statistics import bootstrap_interval, discordant, mcnemar

BUDGET = 0.2  # share of the grid's runs that a search may use
BASELINES = ("default", "published", "random")  # the last two are origins of settings
Row = Mapping[str, Any]


def method_row(advice: Advice) -> dict[str, Any]:
    """A method's row of fronts.json: what `advice_document` says of it, and its criterion.

    The settings of the final test also have lists with one item per problem: `speed_ups` over plain
    decoding, `right`, whether the setting solves it (0 or 1), and `plain_right`, whether plain
    decoding does.
    """
    document = advice_document(advice)
    (row,) = document["caches"]
    (found,) = advice.caches.values()
    front = [name for _, name in document["front"]]
    tested = [one | _by_problem(found.held_back[one["name"]]) for one in row["held_back"]]
    row |= {"front": front, "accepted": sorted(found.accepted), "held_back": tested}
    return dict(row) | {"criterion": criterion(row)}


def _by_problem(measured: Measured) -> dict[str, list[float]]:
    return {
        "speed_ups": [round(one, 4) for one in measured.speed_ups],
        "plain_right": [int(bool(plain.right)) for plain, _ in measured.pairs],
        "right": [int(bool(own.right)) for _, own in measured.pairs],
    }


def criterion(row: Row) -> dict[str, Any]:
    """The chosen setting of a method's row against the best accepted one of each of the BASELINES.

    A comparison is what `compared` says, or None if no setting of the kind was accepted. `budget`
    is the share of the grid's runs that the search used. `met` says that a setting was chosen, that
    it is at least as fast as each of the others, and that the search used less than BUDGET.
    """
    share = row["runs"] / row["grid_runs"]
    own = next((one for one in row["held_back"] if one["chosen"]), None)
    if own is None:
        return {"budget": share, "met": False}
    accepted = [one for one in row["held_back"] if one["name"] in row["accepted"]]
    against: dict[str, Any] = {}
    for kind in BASELINES:
        of_kind = [one for one in accepted if _is_of(kind, one, row["cache"])]
        best = max(of_kind, key=lambda one: one["speed_up"], default=None)
        against[kind] = None if best is None else compared(own, best)
    fast = all(one is None or one["ratio"] >= 1 for one in against.values())
    return against | {"budget": share, "met": fast and share < BUDGET}


def _is_of(kind: str, one: Row, cache: str) -> bool:
    """Whether a setting of the final test is one of a kind of baselines."""
    if kind == "default":
        return bool(one["name"] == f"{cache}: {DEFAULT}")
    return bool(one["from"] == kind)


def compared(chosen: Row, other: Row) -> dict[str, Any]:
    """The chosen setting against another one on the same problems.

    `ratio` is the median over the problems of the ratio of both speed-ups over plain decoding,
    `low` and `high` its 95 % bootstrap interval; `gained`, `lost` and `p` are those of McNemar's
    test.
    """
    ratios = np.array(chosen["speed_ups"]) / np.array(other["speed_ups"])
    low, high = bootstrap_interval(ratios.tolist(), statistic=np.median)
    gained, lost = discordant(zip(other["right"], chosen["right"], strict=True))
    return {
        "name": other["name"], "ratio": float(np.median(ratios)), "low": float(low),
        "high": float(high), "gained": gained, "lost": lost, "p": mcnemar(gained, lost),
    }  # fmt: skip
