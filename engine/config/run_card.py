"""Run cards: the settings and results of a race as a JSON document, which can be run again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from engine.config.spec import RaceSpec, RunSpec


def is_card(document: Any) -> bool:
    """Whether a document is meant as a run card."""
    return isinstance(document, dict) and {"lanes", "summary"} <= document.keys()


def specs_of(card: Any) -> dict[str, RunSpec]:
    """The specs of a run card, by lane; `card` is an untrusted document.

    Raises ValueError if the document is not a run card, or if a lane is a branch of another run.
    """
    try:
        rows = card["lanes"].values()
        specs = {lane: RunSpec.from_dict(row["spec"]) for lane, row in card["lanes"].items()}
        parts = [part for row in rows for part in (row["model"], row["results"])]
        parts += [row["guider"] for row in rows if row.get("guider")]
    except (KeyError, TypeError, AttributeError):
        parts = [None]
    if not all(isinstance(part, dict) for part in parts):
        raise ValueError("card: not a run card of Driftscope; export it again")
    if not specs or not set(specs) <= {"a", "b"}:
        raise ValueError("card: a run card has the lanes a and b; export it again")
    if any(spec.start for spec in specs.values()):
        raise ValueError("card: a lane continues another run; repeat it on the page instead")
    return specs


def race_of(card: Any) -> RaceSpec:
    """The race of a run card; a single lane races plain decoding of its prompt, in lane A.

    Raises ValueError as `specs_of`, or if the lanes do not fit together.
    """
    specs = specs_of(card)
    if len(specs) == 2:
        return RaceSpec(specs["a"], specs["b"])
    (spec,) = specs.values()
    steps = spec.gen_length if spec.steps % spec.blocks else spec.steps  # maybe not used by `spec`
    return RaceSpec(replace(spec, cache="none", unmasker="quota", knobs={}, steps=steps), spec)
