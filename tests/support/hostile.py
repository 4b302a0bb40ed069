"""Hypothesis strategies for hostile specs, links and values, and the check of refusals."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import quote, urlencode

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.catalog import describe, policies, unmaskers
from engine.config.knobs import describe_fields
from engine.config.spec import RunSpec
from tests.support.browser import PROMPT

FIELDS = tuple(f.name for f in dataclasses.fields(RunSpec))
METHODS = policies() | unmaskers()
KNOBS = tuple(f"{n}.{row['name']}" for n, cls in METHODS.items() for row in describe_fields(cls))
NASTY = (
    "", " ", "\0", "../../etc/passwd", "/etc/passwd", "file:///etc/passwd", "http://127.0.0.1:1/x",
    "C:\\x", "%00", "a" * 9_000, "<script>alert(1)</script>", "${1+1}", "{{x}}", "'; DROP",
    "\ud800", "１２", "٣", "NaN", "-0", "1e999", "0x10", "None", "null", "true", "[]", "{}",
    "__class__", "\u202e\u0000", "tiny-llada", "dual+dare_o", "dual+dual", "none+none", "+",
    "dare_kv+dual",
)  # fmt: skip
NUMBERS = (0, 1, -1, 2, 7, 16, 31, 32, 1_024, 1_025, 2**31, 2**63, 10**30, 0.5, -0.0, 1e308)
UNKNOWN = ": unknown field; the fields are "  # after any name
SENTENCES = re.compile(  # messages of the page that have no field to name
    r"Nothing to (record|export): press Run first|This run is no longer in memory|"
    r"Invalid request: expected run id|Queue is full|Invalid file type|"
    r"The recording was stopped|.*: this run does not use that method; its cache is ",
    re.S,
)
LABELLED = [knob for rows in describe().values() for row in rows for knob in row.get("knobs", ())]
LABELS = "|".join(re.escape(row["label"]) for row in (*describe_fields(RunSpec), *LABELLED))
NAMED = re.compile(
    r"(?:Not imported\. |Lane [AB], |The settings of the link are invalid \(|The run failed: )*"
    rf"(?:[ab]\.)?(?:{LABELS}|[\w+-]+)[\w.]*(?:, [\w.]+)*: ",
    re.I,  # the page shows labels with a capital
)


class Failed(AssertionError):
    """Input that was neither accepted nor refused by a message that names a field."""


def each(count: int, strategy: st.SearchStrategy, check: Callable[[Any], None]) -> None:
    """Call `check` on `count` drawn values; Hypothesis reports the smallest that fails."""
    fuzzed = given(strategy)(lambda value: check(value))
    settings(
        max_examples=count, deadline=None, database=None, derandomize=True,
        suppress_health_check=list(HealthCheck),
    )(fuzzed)()  # fmt: skip


scalars = (
    st.none()
    | st.booleans()
    | st.sampled_from(NUMBERS)
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(NASTY)
    | st.text(max_size=20)
)
junk = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=8,
)


def _likely(row: dict) -> st.SearchStrategy:
    """A value of a field's type, mostly in its range."""
    if row["choices"]:
        return st.sampled_from(row["choices"])
    if row["type"] == "bool":
        return st.booleans()
    if row["type"] == "int":
        return st.integers(row["lo"] or 0, min(row["hi"] or 64, 64))
    if row["type"] == "float":
        return st.floats(row["lo"] or 0, row["hi"] or 1, allow_nan=False)
    return st.just(row["default"])


def _mostly(draw, usual: st.SearchStrategy, other: st.SearchStrategy):
    """`usual` in 15 of 16 draws; Hypothesis by itself would choose both equally often."""
    return draw(usual if draw(st.integers(0, 15)) else other)


SHAPES = ((8, 8), (16, 8), (16, 16), (32, 16), (24, 8))


@st.composite
def specs(draw, model: str) -> dict:
    """The plain data of a spec for a model: often valid, never large, wrong anywhere."""
    length, block = draw(st.sampled_from(SHAPES))
    out = {"model": model, "prompt": PROMPT, "gen_length": length, "block_length": block}
    out["steps"] = length
    for kind, known in (("unmasker", unmaskers()), ("cache", policies())):
        names = [n for n in known if n != "guided"]
        out[kind] = _mostly(draw, st.sampled_from(names), st.sampled_from(NASTY))
        rows = describe_fields(known[out[kind]]) if out[kind] in known else []
        for row in draw(st.lists(st.sampled_from(rows), max_size=2)) if rows else ():
            out[f"{out[kind]}.{row['name']}"] = _mostly(draw, _likely(row), junk)
    own = {row["name"]: row for row in describe_fields(RunSpec)}
    own["model"]["choices"] = (model,)
    for name in draw(st.lists(st.sampled_from(FIELDS), max_size=2)):
        if name in ("unmasker", "cache", "gen_length", "block_length", "steps"):
            out[name] = _mostly(draw, st.just(out[name]), junk)
        elif name in own:
            out[name] = _mostly(draw, _likely(own[name]), junk)
        elif draw(st.booleans()):
            out[name] = draw(junk)
    if not draw(st.integers(0, 15)):
        out[draw(st.sampled_from(KNOBS) | st.text(max_size=12))] = draw(junk)
    return out


def races(model: str) -> st.SearchStrategy:
    """The plain data of a race for a model."""
    whole = st.builds(lambda a, b: {"a": a, "b": b}, specs(model), specs(model))
    return st.integers(0, 15).flatmap(lambda n: whole if n else junk)


@st.composite
def links(draw, model: str) -> str:
    """The query of a race, with parts replaced, repeated or cut."""
    flat = {k: str(v) for k, v in draw(specs(model)).items()}
    lane = draw(st.sampled_from(("", "", "", "b.")))
    pairs = [(_mostly(draw, st.just(""), st.just(lane)) + k, v) for k, v in flat.items()]
    text = st.sampled_from(NASTY) | st.text(max_size=12)
    if draw(st.booleans()):
        pairs.append(draw(st.tuples(text | st.sampled_from(KNOBS), text)))
    try:
        query = urlencode(pairs)
    except UnicodeEncodeError:
        query = "&".join(
            f"{quote(k, errors='replace')}={quote(v, errors='replace')}" for k, v in pairs
        )
    cut = draw(st.integers(0, 12))
    return query[: draw(st.integers(0, len(query)))] + draw(text) if cut == 0 else query


def is_named(said: object) -> bool:
    """Whether a message names a field, or is one of SENTENCES."""
    if not isinstance(said, str):
        return False
    found = NAMED.match(said)
    return (
        bool(found or SENTENCES.match(said) or UNKNOWN in said)
        and "Unexpected error in the app" not in said
    )
