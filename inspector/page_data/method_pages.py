"""The method pages as data: description, knobs, published and measured figures, a race to try."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from engine.config.spec import RaceSpec, RunSpec
from engine.core.tables import (
    DAGGER_NOTE,
    marked,
    mean_agreement,
    measured_on,
    percent,
    percentage,
    problem_counts,
)
from inspector.page_data.sizes import counted

Row = Mapping[str, Any]
KINDS = {"cache": "Caches", "unmasker": "Unmaskers"}
SPEED_HEAD = (
    "Forwards", "To text end", "GFLOPs a position", "Recomputed", "A step", "A run", "Its text",
)  # fmt: skip


def document(catalog: Mapping[str, Any], plain: RunSpec, results: Row | None) -> dict[str, Any]:
    """The pages of all methods in a catalog, caches first, in the catalog's order.

    Args:
        catalog: the session's catalog.
        plain: the spec of plain decoding, against which each method can be tried.
        results: this repository's own measurements, as written by `python -m engine tables`, of
            which the first table is shown; None if there are none.
    """
    groups = []
    for kind, title in KINDS.items():
        rows = catalog[f"{kind}s"]
        pages = [
            _page(kind, row, rows, _plain_for(row, catalog.get("models", ()), plain))
            | {"measured": _measured(kind, row, results)}
            for row in rows
        ]
        groups.append({"title": title, "methods": pages})
    return {"groups": groups, "note": _note(results)}


def trial(kind: str, name: str, plain: RunSpec) -> RaceSpec:
    """A race with plain decoding in lane A and a method with its default settings in lane B."""
    return RaceSpec(plain, RunSpec.from_dict(plain.to_dict() | {kind: name}))


def _page(kind: str, row: Row, rows: Sequence[Row], plain: RunSpec | None) -> dict[str, Any]:
    titles = {other["name"]: other["title"] for other in rows}
    beneath = [name for name in row.get("stackable_on", ()) if name != "none"]
    above = [other["name"] for other in rows if row["name"] in other.get("stackable_on", ())]
    plainly = {name: row[name] for name in ("name", "title", "paper", "summary", "published")}
    return plainly | {
        "kind": kind,
        "description": [part for part in row["description"].split("\n\n") if part],
        "knobs": [_knob(row["name"], knob) for knob in row["knobs"]],
        "stands_on": _named(beneath, titles),
        "carries": _named(above if row["name"] != "none" else [], titles),
        "query": "" if plain is None else trial(kind, row["name"], plain).to_query(),
    }


def _plain_for(row: Row, models: Sequence[Row], plain: RunSpec) -> RunSpec | None:
    """Plain decoding by a model whose attention a method goes with; None if there is none.

    `plain` is by a model with full attention; another model is one of the embedded ones.
    """
    kinds = row.get("attention", ("full",))
    if "full" in kinds:
        return plain
    for model in models:
        if model["embedded"] and model["available"] and model["attention"] in kinds:
            return replace(plain, model=model["name"], block_length=model["block_sizes"][0])
    return None


def _named(names: Sequence[str], titles: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"name": name, "title": titles[name]} for name in names]


def _knob(owner: str, knob: Row) -> dict[str, str]:
    return {
        "key": f"{owner}.{knob['name']}",
        "label": str(knob["label"])[:1].upper() + str(knob["label"])[1:],
        "default": _shown(knob["default"]),
        "range": _range(knob),
        "help": knob["help"],
        "background": knob["background"],
    }


def _range(knob: Row) -> str:
    if knob["choices"]:
        return ", ".join(knob["choices"])
    if knob["type"] == "bool":
        return "yes or no"
    span = "any" if knob["lo"] is None else f"{_shown(knob['lo'])} to {_shown(knob['hi'])}"
    return f"{span}, or empty" if knob["optional"] else span


def _shown(value: Any) -> str:
    if value is None:
        return "empty"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _measured(kind: str, row: Row, results: Row | None) -> dict[str, Any] | None:
    """The rows in which a method was measured, those of an end-of-text rule after their baseline.

    None if it was not measured. A baseline is shown for itself only if it is the method.
    """
    rows = []
    for block in results["tables"][0]["blocks"] if results else ():
        base, *others = block["rows"]
        found = [one for one in others if row["name"] in _shown_by(kind, one["spec"])]
        if found or row["name"] == base["spec"][kind]:
            rows += [_cells(one, block["eos"]) for one in (base, *found)]
    if results is None or not rows:
        return None
    first = results["tables"][0]["blocks"][0]["rows"][0]
    labels = [one["label"] for one in first["families"].values()]
    return {"head": ("Setting", "End of text", *labels, "Same tokens", *SPEED_HEAD), "rows": rows}


def _shown_by(kind: str, spec: Row) -> list[str]:
    """The methods that a measured row belongs to: its caches, or its unmasker if it has none."""
    if spec["cache"] == "none":
        return [spec["unmasker"]] if kind == "unmasker" else []
    return spec["cache"].split("+") if kind == "cache" else []


def _cells(row: Row, rule: str) -> list[str]:
    right = [marked(found, percent(found)) for found in row["families"].values()]
    cells = [row["name"], rule, *right, mean_agreement(row)]
    speed = row["speed"]
    if speed is None:
        return cells + ["–"] * len(SPEED_HEAD)
    ratios = (speed[name] for name in ("step_ratio", "speed_up", "text_speed_up"))
    return [
        *cells,
        f"{speed['nfe']:.0f}",
        f"{speed['text_nfe']:.0f}",
        f"{speed['gflops_per_position']:.2f}",
        percentage(speed["recomputed"], 0),
        *("–" if ratio is None else f"{ratio:.2f}×" for ratio in ratios),
    ]


def _note(results: Row | None) -> str:
    """The conditions of the measurements, in words."""
    if results is None:
        return ""
    first, where = results["tables"][0]["blocks"][0]["rows"][0], results["environment"]
    spec, speed = first["spec"], first["speed"]
    timed = (
        "What follows “Same tokens” is measured on a longer task "
        f"({speed['nfe']:.0f} forwards of plain decoding, {speed['prompts']} prompts, one at a "
        "time). “A step”, “A run” and “Its text” (up to the end of the text) are speed-ups over "
        "plain decoding by the same end-of-text rule (above 1 is faster). "
        if speed
        else ""
    )
    return (
        f"Share of held-out problems of this repository's corpus that {spec['model']} answers "
        f"right, {problem_counts(first)}, the same for every row, in blocks of "
        f"{spec['block_length']}. {DAGGER_NOTE} The first row is plain decoding by the same "
        f"end-of-text rule. {timed}{measured_on(results)}, {where['device_name']}, "
        f"{counted(where['threads'], 'thread')}, torch {where['torch']}."
    )
