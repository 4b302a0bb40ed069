"""evaluate: sit the exam of the embedded corpus with any run settings, or with many side by side.

    python -m engine.evaluate --model assets/models/tiny-llada --problems 500 --seed 7 --json
    python -m engine.evaluate --cache dual --unmasker threshold --threshold.threshold 0.9
    python -m engine.evaluate --specs assets/results/specs.json --batch 20 --out assets/results

Problems are drawn from the seed out of the class that training never sees. Prints a table and,
with --json, one JSON document as the last line: {"environment", "rows": [{"accuracy",
"standard_error", "correct", "nfe", "tokens_per_s", "spec", ...}]}.

--specs reads a JSON list of {"name", "title", fields of a spec}, the first of them the baseline:
every row is compared with it problem by problem, and all are timed in turn on long prompts
(engine.evaluate.comparison). --out writes table.json and table.md, with the command, into a folder; --add
puts the rows beside those of the table there, whose first row must come out the same.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import shlex
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from engine import catalog
from engine.bench.suite import read_entries
from engine.config.knobs import Scalar, describe_fields
from engine.config.spec import RunSpec
from engine.evaluate import comparison
from engine.evaluate.exam import sit, summarise
from engine.serve import environment
from engine.serve.lane import LoadedModel
from engine.serve.model_pool import ModelPool
from engine.tiny.exam import exam

EXAM: dict[str, Scalar] = {"gen_length": 64, "block_length": 32}


def add_spec_flags(parser: argparse.ArgumentParser) -> None:
    """A flag for every field of RunSpec and every knob of every component."""
    for row in describe_fields(RunSpec):
        if row["name"] not in ("prompt", "chat"):
            parser.add_argument("--" + row["name"].replace("_", "-"), help=row["help"])
    components = catalog.describe()
    for component in components["caches"] + components["unmaskers"]:
        for row in component["knobs"]:
            parser.add_argument(f"--{component['name']}.{row['name']}", help=row["help"])


def spec_from_flags(args: argparse.Namespace, defaults: dict[str, Scalar]) -> RunSpec:
    """The spec that the flags give over `defaults`; `steps` follows gen_length if not given."""
    known = {f.name for f in dataclasses.fields(RunSpec)}
    given = {k: v for k, v in vars(args).items() if v is not None and (k in known or "." in k)}
    flat = {k: str(v) for k, v in defaults.items()} | {k: str(v) for k, v in given.items()}
    flat.setdefault("steps", flat["gen_length"])
    spec = RunSpec.from_flat(flat)
    catalog.derive_plan(spec)
    return spec


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; `arguments` default to those of the process."""
    args = _parser().parse_args(arguments)
    folder = Path(args.model or "assets/models/tiny-llada")
    args.model = folder.name
    torch.set_num_threads(args.threads)
    try:
        document = _compare(args, folder) if args.specs else _sit(args, folder)
    except ValueError as error:
        raise SystemExit(f"error: {error}") from None
    if args.json:
        print(json.dumps(document))


def _sit(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    spec = spec_from_flags(args, EXAM)
    model = ModelPool({folder.name: folder}).load(spec)
    sittings = list(sit(model, spec, exam(args.problems, spec.seed, args.shots), args.batch))
    row = summarise(spec, sittings) | {"shots": args.shots, "batch": args.batch}
    shown = ("problems", "accuracy", "standard_error", "nfe", "tokens_per_forward", "tokens_per_s")
    print(f"{spec.model}, cache {spec.cache}, unmasker {spec.unmasker}, {args.shots} shots")
    for name in shown:
        print(f"  {name:20}{row[name]:10.4f}")
    return {"environment": environment.describe(spec, model.digest), "rows": [row]}


def _compare(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    base = spec_from_flags(args, EXAM)
    entries = read_entries(args.specs, base)
    library = ModelPool({folder.name: folder})
    digest = library.load(base).digest
    saved = _saved(args.out) if args.add else None
    if saved is not None:
        comparison.check_same(saved, entries[0].spec, digest)
    questions = exam(args.problems, base.seed, args.shots)
    rows = comparison.compare(partial(_load, folder), entries, questions, args.batch, args.workers)
    speed = comparison.time_prompts(
        library.load, entries, exam(args.timed, base.seed, args.timed_shots)
    )
    where = environment.describe(base, digest)
    command = shlex.join(["python", "-m", "engine.evaluate", *sys.argv[1:]])
    rows = [row | {"speed": speed.get(row["name"])} for row in rows]
    document = {"environment": where, "command": command, "rows": rows}
    if saved is not None:
        document = comparison.added(saved, document)
    text = comparison.markdown(document)
    print(text)
    if args.out:
        args.out.mkdir(parents=True, exist_ok=True)
        (args.out / "table.json").write_text(json.dumps(document) + "\n", "utf-8")
        (args.out / "table.md").write_text(text, "utf-8")
    return document


def _load(folder: Path, spec: RunSpec) -> LoadedModel:
    return ModelPool({folder.name: folder}).load(spec)


def _saved(folder: Path | None) -> dict[str, Any]:
    """The table of a folder; ValueError naming `add` where there is none."""
    try:
        assert folder is not None
        return json.loads((folder / "table.json").read_text("utf-8"))
    except (AssertionError, OSError, ValueError):
        raise ValueError("add: --out should be a folder with a table.json") from None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m engine evaluate",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--problems", type=int, default=500, help="how many to draw")
    parser.add_argument("--shots", type=int, default=0, help="worked examples before each")
    parser.add_argument("--batch", type=int, default=1, help="problems decoded together")
    parser.add_argument("--threads", type=int, default=1, help="torch threads")
    parser.add_argument("--json", action="store_true", help="end with one JSON line")
    parser.add_argument("--workers", type=int, default=1, help="--specs: processes that sit")
    parser.add_argument("--specs", type=Path, help="JSON file of settings to compare")
    parser.add_argument(
        "--timed", type=int, default=5, help="--specs: long prompts to time (0: no)"
    )
    parser.add_argument("--timed-shots", type=int, default=8, help="worked examples in each")
    parser.add_argument("--out", type=Path, help="--specs: folder for table.json and table.md")
    parser.add_argument("--add", action="store_true", help="--out: add the rows to its table")
    add_spec_flags(parser)
    return parser


if __name__ == "__main__":
    main()
