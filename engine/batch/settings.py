"""Named settings of a comparison, read from a JSON file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from engine.catalog import derive_plan, with_end_of_text_rules
from engine.config.spec import RunSpec
from engine.config.validation import check_name
from engine.core.files import read_json

PLAIN = "plain decoding"  # the name of the setting that the others are compared with


@dataclass(frozen=True)
class NamedSpec:
    """A row of a comparison: its name and its settings."""

    name: str
    spec: RunSpec


def read_specs(path: Path, base: RunSpec) -> list[NamedSpec]:
    """Read a JSON list of {"name", fields of a spec} over `base`.

    Raises ValueError naming the file, or the row and the field.
    """
    return named_specs(read_json(path, "specs"), base, path)


def named_specs(rows: Any, base: RunSpec, path: Path | None = None) -> list[NamedSpec]:
    """The specs of a list of {"name", fields of a spec} over `base`.

    `path` is the file of the list; None if it is the field `settings` of a request. Raises
    ValueError naming the file or the field, or the row and its field.
    """
    given = "settings: the field" if path is None else f"specs: {path}"
    named = isinstance(rows, list) and all(
        isinstance(row, dict) and isinstance(row.get("name"), str) for row in rows
    )
    if not named or not rows:
        raise ValueError(f'{given} must be a JSON list of {{"name", fields}}, not empty')
    specs: list[NamedSpec] = []
    field = given.partition(":")[0]
    for row in rows:
        check_name(f"{field}: name", row["name"])
        changes = {key: value for key, value in row.items() if key != "name"}
        try:
            spec = with_fields(base, changes)
            derive_plan(spec)
        except ValueError as error:
            raise ValueError(f"{field}: {row['name']}: {error}") from None
        if any(row["name"] == one.name for one in specs):
            raise ValueError(f"{given}: two rows are named {row['name']}; give each its own name")
        specs.append(NamedSpec(row["name"], spec))
    return specs


def check_rules(specs: Sequence[NamedSpec]) -> list[NamedSpec]:
    """The specs with their common end-of-text rule (catalog.with_end_of_text_rules).

    Raises ValueError naming `eos` if they have different ones.
    """
    if len({one.spec.eos for one in specs}) > 1:
        raise ValueError(
            "specs: eos: the rows of a table need one end-of-text rule; make a table for each rule"
        )
    return _with_rules(specs)


def batch_settings(specs: Sequence[NamedSpec]) -> list[NamedSpec]:
    """The specs as a batch runs them: with one end-of-text rule, without prompt and recorder.

    Raises ValueError naming `settings` or `images` if a spec asks for what a batch cannot do.
    """
    return _with_rules([NamedSpec(one.name, _bare(one.spec)) for one in specs])


def _bare(spec: RunSpec) -> RunSpec:
    """A spec without what a batch does by itself; ValueError for what it cannot do."""
    check_bare(spec, "settings", "a batch")
    return replace(spec, prompt="", record="off")


def check_bare(spec: RunSpec, field: str, who: str) -> None:
    """Raise ValueError naming `field` or `images` if a spec has messages, images or tokens.

    `who` names in the message what takes none, since it has prompts of its own.
    """
    if spec.start is not None or spec.fixed or spec.messages:
        raise ValueError(f"{field}: {who} takes no start, fixed tokens or messages; remove them")
    if spec.images:
        raise ValueError(f"images: {who} takes none; remove the image from the settings")


def _with_rules(specs: Sequence[NamedSpec]) -> list[NamedSpec]:
    ruled = with_end_of_text_rules([one.spec for one in specs])
    return [NamedSpec(one.name, spec) for one, spec in zip(specs, ruled, strict=True)]


def plain_decoding(base: RunSpec) -> RunSpec:
    """Plain decoding with the lengths of `base`, a token a step; `base` itself if it is plain."""
    if (base.cache, base.unmasker) == ("none", "quota"):
        return base
    return replace(base, cache="none", unmasker="quota", knobs={}, steps=base.gen_length)


def with_fields(spec: RunSpec, changes: Mapping[str, Any]) -> RunSpec:
    """A spec with changed fields; keys with a dot are knobs."""
    return RunSpec.from_dict(spec.to_dict() | dict(changes))
