"""Fronts on further held-out problems, which are decoded in batches and judged, but not timed.

Times depend on the machine and its load; which problems a setting solves does not, up to rounding.
So the times of the first problems stay, and the further ones may be decoded elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from engine.advise.advisor import fastest, unbeaten
from engine.advise.kept import Kept, accuracy_kept
from engine.batch.statistics import discordant, mcnemar
from engine.config.spec import RunSpec
from engine.evaluate.fronts.bar import RIVALS, Row, bar

PLAIN = "plain decoding"
Solved = Mapping[str, Sequence[bool]]  # by name of a setting: which further problems it solves


def settings_to_judge(document: Row, plain: RunSpec) -> dict[str, RunSpec]:
    """Plain decoding, and the settings of fronts.json tested on all its problems, by name."""
    tested = [one for row in document["methods"] for one in row["held_back"]]
    whole = [one for one in tested if _is_whole(one, document)]
    return {PLAIN: plain} | {one["name"]: RunSpec.from_dict(one["spec"]) for one in whole}


def with_further(document: Row, solved: Solved) -> dict[str, Any]:
    """The document of fronts.json after further problems, given which ones each setting solves.

    `solved` has the names of `settings_to_judge`. What these settings keep is then that of all
    problems, and the accepted ones, the chosen one, the front and the bar follow from it. Raises
    ValueError naming the method if that needs a comparison of times that the document lacks.
    """
    problems = document["further"] + len(solved[PLAIN])
    methods = [_method(row, document, solved) for row in document["methods"]]
    return dict(document) | {"further": problems, "methods": methods}


def _is_whole(one: Row, document: Row) -> bool:
    return bool(one["kept"] and one["kept"]["pairs"] == document["held_out"] + document["further"])


def _method(row: Row, document: Row, solved: Solved) -> dict[str, Any]:
    """The row of a method after the further problems."""
    whole = [one for one in row["held_back"] if _is_whole(one, document)]
    kept = {
        one["name"]: _kept(Kept(**one["kept"]), solved[PLAIN], solved[one["name"]]) for one in whole
    }
    accepted = sorted(name for name, one in kept.items() if one.accepts(document["keep"]))
    chosen = fastest({
        one["name"]: (one["from"], one["speed_up"]) for one in whole if one["name"] in accepted
    })  # fmt: skip
    held_back = [
        dict(one)
        | {"chosen": one["name"] == chosen}
        | ({"kept": asdict(kept[one["name"]])} if one["name"] in kept else {})
        for one in row["held_back"]
    ]
    points = {o["name"]: (o["speed_up"], o["kept"]["share"]) for o in held_back if o["kept"]}
    after = dict(row) | {
        "held_back": held_back, "accepted": accepted, "front": unbeaten(points)
    }  # fmt: skip
    return after | {"bar": bar(after, partial(_compared, row, solved))}


def _compared(before: Row, solved: Solved, chosen: str, rival: str) -> dict[str, Any]:
    """The comparison of a method's row `before`, with the further problems added to it."""
    known = {one["name"]: one for kind in RIVALS if (one := before["bar"].get(kind))}
    was_chosen = any(one["chosen"] and one["name"] == chosen for one in before["held_back"])
    if not was_chosen or rival not in known:
        raise ValueError(
            f"{before['cache']}: on the further problems {chosen!r} has to be compared with "
            f"{rival!r}, whose times were not compared; test this method anew on more problems"
        )
    gained, lost = discordant(zip(solved[rival], solved[chosen], strict=True))
    gained, lost = known[rival]["gained"] + gained, known[rival]["lost"] + lost
    return dict(known[rival]) | {"gained": gained, "lost": lost, "p": mcnemar(gained, lost)}


def _kept(before: Kept, plain: Sequence[bool], own: Sequence[bool]) -> Kept:
    """What a setting keeps on the problems so far and on the further ones together."""
    pairs = [(True, True)] * (before.plain_right - before.lost)
    pairs += [(True, False)] * before.lost + [(False, True)] * before.gained
    pairs += [(False, False)] * (before.pairs - len(pairs))
    kept = accuracy_kept([*pairs, *zip(plain, own, strict=True)])
    assert kept is not None, "plain decoding solves some of the problems so far"
    return kept
