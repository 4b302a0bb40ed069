"""Why a row was recomputed or reused: the reasons that the run's cache gives, as data."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from engine.core.events import KINDS, SITES
from engine.core.reasons import GENERIC
from engine.trace.trace import Trace
from inspector.page_data.packing import pack_arrays
from inspector.page_data.row_counts import count_bits

FULL = KINDS.index("full")
KNOB = re.compile(r"(!?)(\w+)=(.*)")
PLACEHOLDER = re.compile(r"\{(title|knob|every)(?::(\w+))?\}")

Row = Mapping[str, Any]


def why(trace: Trace, caches: Sequence[Row] = ()) -> dict[str, Any]:
    """The facts of `why_facts` with encoded arrays."""
    return pack_arrays(why_facts(trace, caches))


def why_facts(trace: Trace, caches: Sequence[Row] = ()) -> dict[str, Any]:
    """The reasons of a run's cache, and what their conditions and placeholders refer to.

    Args:
        trace: the trace of the run.
        caches: the caches of the catalog; a cache that is not among them has generic reasons.

    Returns:
        A document with `parts`, the names of the run's caches (`a+b` is b on a); `reasons`, for
        each part a list of {when, text} with titles and knobs filled in (engine.core.reasons);
        `shift`, the number of rows by which a row precedes the token that it predicts; `due`
        [S, 3], whether a step refreshes the whole prompt, block or rest; `facts`, the policy's
        quantities by layer; and `budget_of`, the rows that the fact `budget` is a share of: `all`,
        or those of the `answer`.

    Raises:
        ValueError: the run has no recorded plans.
    """
    arrays, spec = trace.arrays(), trace.meta["spec"]
    if not len(arrays["plan"]):
        raise ValueError(
            "This run has no recorded plans: press Record to see why rows were recomputed."
        )
    parts = str(spec.get("cache", "none"))[:60].split("+")[:2]
    knobs = _knobs(spec.get("knobs"), parts)
    known = {row["name"]: row for row in caches}
    found = trace.meta.get("facts")
    facts: Mapping[str, Any] = found if isinstance(found, Mapping) else {}
    return {
        "parts": parts,
        "reasons": [_reasons(part, known.get(part, {}), knobs) for part in parts],
        "shift": trace.region_shift,
        "due": refreshes(trace),
        "facts": dict(facts),
        "budget_of": "all" if chooses_prompt_rows(trace) else "answer",
    }


def refreshes(trace: Trace) -> np.ndarray:
    """Where a step refreshes a whole region, bool [S, 3]: as planned, else as it was done."""
    planned = trace.arrays()["planned"]
    return (planned if len(planned) else trace.recomputed_kinds()) == FULL


def chooses_prompt_rows(trace: Trace) -> bool:
    """Whether a layer after the first recomputes some prompt rows between refreshes of the prompt.

    Rows are those of the feed-forward output.
    """
    arrays = trace.arrays()
    first = trace.prompt_length - trace.region_shift
    between = arrays["plan"][~refreshes(trace)[:, 0], 1:, SITES.index("ffn")]
    return bool(count_bits(between, 0, first).any())


def _reasons(name: str, row: Row, knobs: Row) -> list[dict[str, str]]:
    """The reasons of a method that can apply at the run's knobs, with title and knobs filled in."""
    values = {knob["name"]: knob["default"] for knob in row.get("knobs", ())}
    values |= {knob: knobs[f"{name}.{knob}"] for knob in values if f"{name}.{knob}" in knobs}
    title = str(row.get("title", name))

    def value(found: re.Match[str]) -> str:
        if found[1] == "title":
            return title
        text = _every(values.get(found[2])) if found[1] == "every" else _text(values.get(found[2]))
        return text or found[0]

    reasons = []
    for reason in row.get("reasons") or [one._asdict() for one in GENERIC]:
        words = reason["when"].split()
        settings = [setting for word in words if (setting := KNOB.fullmatch(word))]
        if all((_text(values.get(s[2])) == s[3]) != bool(s[1]) for s in settings):
            when = " ".join(word for word in words if not KNOB.fullmatch(word))
            reasons.append({"when": when, "text": PLACEHOLDER.sub(value, reason["text"])})
    return reasons


def _text(value: Any) -> str:
    """A knob's value as a condition writes it: `true`, `8`, empty."""
    return "" if value is None else str(value)[:100].lower()


def _every(value: Any) -> str:
    """An interval in words; empty if there is none."""
    if type(value) is not int or value < 1:
        return ""
    return "in every step" if value == 1 else f"every {value} steps"


def _knobs(given: Any, parts: list[str]) -> dict[str, Any]:
    """The knobs of a spec that belong to the run's caches, at most 40."""
    if not isinstance(given, Mapping):
        return {}
    known = {k: v for k, v in given.items() if isinstance(k, str) and k.split(".")[0] in parts}
    return dict(list(known.items())[:40])
