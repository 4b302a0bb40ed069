"""Command-line flags for every setting of a run."""

from __future__ import annotations

import argparse
import dataclasses

from engine import catalog
from engine.config.knobs import Scalar, describe_fields, text_knobs
from engine.config.spec import RunSpec

DEFAULTS: dict[str, Scalar] = {"gen_length": 64, "block_length": 16}


def add_spec_flags(parser: argparse.ArgumentParser) -> None:
    """Add a flag for every field of RunSpec and every knob of every component."""
    for row in describe_fields(RunSpec):
        if row["name"] not in ("prompt", "chat"):
            parser.add_argument("--" + row["name"].replace("_", "-"), help=row["help"])
    components = catalog.describe()
    for component in components["caches"] + components["unmaskers"]:
        for row in component["knobs"]:
            parser.add_argument(f"--{component['name']}.{row['name']}", help=row["help"])


def spec_from_flags(args: argparse.Namespace) -> RunSpec:
    """The spec of the flags over DEFAULTS; `steps` follows gen_length unless it is given."""
    known = {f.name for f in dataclasses.fields(RunSpec)}
    given = {k: v for k, v in vars(args).items() if v is not None and (k in known or "." in k)}
    flat = {k: str(v) for k, v in (DEFAULTS | given).items()}
    flat.setdefault("steps", flat["gen_length"])
    components = catalog.describe()
    texts = text_knobs(components["caches"] + components["unmaskers"])
    spec = RunSpec.from_flat(flat, texts)
    catalog.derive_plan(spec)
    return spec
