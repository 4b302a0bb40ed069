"""Command-line flags for every setting of a run, and for prompts."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine import catalog
from engine.batch.prompts import (
    Prompt,
    decoded,
    drawn_prompts,
    read_prompts,
    typed_prompts,
)
from engine.config.knobs import Scalar, describe_fields
from engine.config.spec import MAX_SHOTS, RunSpec
from engine.core.command_line import refuse_flags, with_default
from engine.tiny.corpus import families

DEFAULTS: dict[str, Scalar] = {"gen_length": 64, "block_length": 16}
NOT_FLAGS = ("prompt", "keep_after_image")  # fields; no command takes an image
OF_DRIFTS = ("record_layers", "record_quantities", "record_every", "record_positions")  # fields
OF_A_RECORDING = (*OF_DRIFTS, "probe_steps")
SHOWN: dict[str, Scalar] = DEFAULTS | {"steps": "one a position"}  # defaults in `--help`


def add_spec_flags(
    parser: argparse.ArgumentParser, defaults: Mapping[str, str] | None = None, **helps: str
) -> None:
    """Add a flag for every field of RunSpec but NOT_FLAGS, and every knob of every component.

    `defaults` are the command's own, by field; `helps` are the texts of fields that take other
    values in a command than in a run.
    """
    own = defaults or {}
    for row in describe_fields(RunSpec):
        name = row["name"]
        if name not in NOT_FLAGS:
            usual = None if name in own or name in helps else SHOWN.get(name, row["default"])
            parser.add_argument(
                "--" + name.replace("_", "-"), metavar=_choices(row), default=own.get(name),
                help=_help(helps.get(name, row["help"]), usual),
            )  # fmt: skip
    components = catalog.describe()
    for component in components["caches"] + components["unmaskers"]:
        for row in component["knobs"]:
            flag = f"--{component['name']}.{row['name']}"
            text = _help(row["help"], row["default"])
            parser.add_argument(flag, metavar=_choices(row), help=text)


def _help(text: str, default: Scalar) -> str:
    """A text as argparse takes it, followed by the default unless that is None or empty."""
    shown = "" if default is None else str(default)
    shown = shown.lower() if isinstance(default, bool) else shown
    return with_default(text.replace("%", "%%"), shown)


def _choices(row: Mapping[str, Any]) -> str | None:
    """The values of a field or knob that `--help` lists; None if there are too many to list."""
    choices = ("true", "false") if row["type"] == "bool" else row["choices"]
    return f"{{{','.join(choices)}}}" if choices else None


def spec_from_flags(args: argparse.Namespace) -> RunSpec:
    """The spec of the flags over DEFAULTS; `steps` follows gen_length unless it is given."""
    known = {f.name for f in dataclasses.fields(RunSpec)}
    given = {k: v for k, v in vars(args).items() if v is not None and (k in known or "." in k)}
    flat = {k: str(v) for k, v in (DEFAULTS | given).items()}
    flat.setdefault("steps", flat["gen_length"])
    spec = RunSpec.from_flat(flat, catalog.text_knobs_of_methods())
    catalog.derive_plan(spec)
    return spec


def add_prompt_flags(parser: argparse.ArgumentParser, problems: int) -> None:
    """Add the flags of prompts; `problems` is the default number of drawn ones."""
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--prompts", type=Path, help="file of prompts: .jsonl, or one a line")
    source.add_argument("--family", choices=tuple(families()), help="problems of this family")
    parser.add_argument(
        "--problems", type=int, help=f"--family: number of problems, by default {problems}"
    )
    parser.add_argument(
        "--shots", type=int, choices=range(MAX_SHOTS + 1),
        help="--family: worked examples, as far as they fit; by default 0",
    )  # fmt: skip
    parser.set_defaults(default_problems=problems)


def check_prompt_flags(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    """End the command if flags of drawn problems stand beside a file of prompts."""
    if args.prompts is not None:
        reason = "it is of --family; leave it out with --prompts"
        refuse_flags(parser, args, ("problems", "shots"), reason)


def check_recording_flags(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    """End the command if flags narrow a recording that `--record` does not make."""
    if args.record not in ("layers", "probe"):
        reason = "only --record layers and --record probe record drifts; leave it out"
        refuse_flags(parser, args, OF_DRIFTS, reason)
    if args.record != "probe":
        refuse_flags(parser, args, ["probe_steps"], "only --record probe probes; leave it out")


def prompts_from_flags(args: argparse.Namespace) -> list[Prompt]:
    """The prompts of the flags. Raises ValueError naming `prompts` or `problems`."""
    if args.prompts is None:
        count = args.default_problems if args.problems is None else args.problems
        return drawn_prompts(args.family, count, int(args.seed or 0), args.shots or 0)
    try:
        data = args.prompts.read_bytes()
    except OSError as error:
        raise ValueError(f"prompts: {args.prompts} is not readable ({error})") from None
    if args.prompts.suffix == ".jsonl":
        return read_prompts(data)
    return typed_prompts(decoded(data))
