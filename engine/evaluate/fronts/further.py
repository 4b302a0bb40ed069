"""Fronts on further held-out problems, which are decoded in batches and judged, but not timed.

Times depend on the machine and its load; which problems a setting solves does not, up to rounding.
So the times of the first problems stay, and the further ones may be decoded elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from engine.advise.advisor import FIRST_TEST, fastest, unbeaten
from engine.advise.kept import Kept, accuracy_kept
from engine.batch.settings import PLAIN
from engine.config.spec import RunSpec
from engine.evaluate.fronts.criterion import Row, criterion

Solved = Mapping[str, Sequence[bool]]  # by name of a setting: which further problems it solves


def settings_to_judge(document: Row, plain: RunSpec) -> dict[str, RunSpec]:
    """Plain decoding, and the settings of fronts.json to be judged on further problems, by name.

    They are those tested on all problems of their method, without those that keep too little, by
    the whole interval, on FIRST_TEST problems or more. Problems on which plain decoding failed do
    not count; it may have failed beside one method only.
    """
    left = [one for row in document["methods"] for one in _left(row["held_back"], document["keep"])]
    return {PLAIN: plain} | {one["name"]: RunSpec.from_dict(one["spec"]) for one in left}


def _left(tested: Sequence[Row], keep: float) -> Iterator[Row]:
    """Those of a method's settings that are to be judged further."""
    problems = max((len(one["right"]) for one in tested), default=0)
    whole = (one for one in tested if len(one["right"]) == problems and one["kept"])
    for one in whole:
        if problems < FIRST_TEST or Kept(**one["kept"]).may_keep(keep):
            yield one


def with_further(document: Row, solved: Solved) -> dict[str, Any]:
    """The document of fronts.json after further problems, given which ones each setting solves.

    `solved` has the names of `settings_to_judge`. What these settings keep is then that of all
    problems, and the accepted ones, the chosen one, the front and the criterion follow from it.
    """
    problems = document["further"] + len(solved[PLAIN])
    methods = [_method(row, document["keep"], solved) for row in document["methods"]]
    return dict(document) | {"further": problems, "methods": methods}


def _method(row: Row, keep: float, solved: Solved) -> dict[str, Any]:
    """The row of a method after the further problems."""
    held_back = [_setting(one, solved) for one in row["held_back"]]
    whole = [one for one in held_back if one["name"] in solved]  # judged on the same problems
    accepted = {
        one["name"]: (one["from"], one["speed_up"])
        for one in whole
        if Kept(**one["kept"]).accepts(keep)
    }
    chosen = fastest(accepted)
    for one in held_back:
        one["chosen"] = one["name"] == chosen
    points = {one["name"]: (one["speed_up"], one["kept"]["share"]) for one in whole}
    after = dict(row) | {
        "held_back": held_back, "accepted": sorted(accepted), "front": unbeaten(points)
    }  # fmt: skip
    return after | {"criterion": criterion(after)}


def _setting(one: Row, solved: Solved) -> dict[str, Any]:
    """A setting of the final test after the further problems, if it is judged on them."""
    if one["name"] not in solved:
        return dict(one)
    plain_right = [*one["plain_right"], *map(int, solved[PLAIN])]
    right = [*one["right"], *map(int, solved[one["name"]])]
    kept = accuracy_kept(list(zip(plain_right, right, strict=True)))
    assert kept is not None, "plain decoding solves some of the problems so far"
    return dict(one) | {"plain_right": plain_right, "right": right, "kept": asdict(kept)}
