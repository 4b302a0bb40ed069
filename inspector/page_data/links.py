"""What a link needs to bring a race back: its settings, its branches, the name of its recording."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

from engine.config.branch_start import REMASK
from engine.config.spec import RaceSpec, RunSpec
from engine.trace.trace import Trace
from inspector.page_data import foreign
from inspector.protocol import Lane
from inspector.run_store import RaceRecord

KEPT = (  # what a branch has from its parent, whatever its settings are
    "model", "prompt", "messages", "chat", "gen_length", "fixed", "device", "record",
    "images", "keep_after_image", "suffix",
)  # fmt: skip
# What the lanes of the page's form may differ in, and what no link has.
OF_A_LANE = ("unmasker", "cache", "knobs", "steps", "record", "probe_steps", "probe_at")
OWN_KEYS = (  # of the page and of Gradio, which are not settings
    "view", "deep_link", "logs", "lesson", "cursor", "look", "show", "align", "colour", "branch",
    "recorded",
)  # fmt: skip


def link(record: RaceRecord) -> dict[str, Any] | None:
    """The parts of a link to a race; None if no link to the page can bring it back.

    `query` has the settings of both lanes; for a branch, those of the first race; it is empty for a
    bundled run whose settings the page's form cannot show. `branches` are then run one after the
    other (see `branch_text`). `recorded` names a bundled recorded run.
    """
    query = record.origin or settings(record.started())
    if not query and not record.bundled:
        return None
    return {"query": query, "branches": list(record.branches), "recorded": record.bundled}


def is_setting(key: str) -> bool:
    """Whether a key of a link's query is a setting, and not one of OWN_KEYS."""
    return not key.startswith("__") and key not in OWN_KEYS


def settings(traces: Mapping[Lane, Trace]) -> str:
    """The settings of a race as a query.

    Empty if a lane is missing, is a branch or was decoded by another engine, and if the page's form
    cannot show the race.
    """
    if len(traces) != 2 or any(foreign.facts(trace) for trace in traces.values()):
        return ""
    specs = {lane: RunSpec.from_dict(trace.meta["spec"]) for lane, trace in traces.items()}
    if any(spec.start for spec in specs.values()) or not_in_form(**specs):
        return ""
    return RaceSpec(
        **{lane: replace(spec, record="off") for lane, spec in specs.items()}
    ).to_query()


def not_in_form(a: RunSpec, b: RunSpec) -> str:
    """Why the page's form cannot show the settings of two lanes; empty if it can."""
    one, other = a.to_dict(), b.to_dict()
    for name in one:
        if name not in OF_A_LANE and one[name] != other[name]:
            return f"{name}: both lanes share it on the page; use the API instead"
    if a.messages or a.fixed:
        return "messages, fixed: the page takes one prompt; use the API instead"
    return ""


def branch_text(spec: RunSpec, parent: RunSpec, lane: Lane) -> str:
    """A branch as it stands in a link.

    This is `lane.step`, the step counted from 1; then, if the canvas was edited, a dot and pairs
    `token-id` with commas between them, the answer tokens counted from 1 and `m` as the id of one
    that is masked again; then, if the settings are not those of the parent, `?` and their query.
    """
    assert spec.start is not None
    parts = [lane, str(spec.start.step + 1)]
    edits = [f"{at + 1}-{'m' if token == REMASK else token}" for at, token in spec.start.edits]
    if edits:
        parts.append(",".join(edits))
    own, given = (replace(one, start=None, record="off").flat() for one in (spec, parent))
    changed = {name: value for name, value in own.items() if name not in KEPT}
    return ".".join(parts) + ("" if own == given else "?" + urlencode(changed))
