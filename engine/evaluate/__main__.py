"""Evaluate run settings on the exam of the embedded corpus: one setting, or many side by side.

    python -m engine evaluate --model assets/models/tiny-llada --problems 500 --seed 7 --json
    python -m engine evaluate --cache dual --unmasker threshold --threshold.threshold 0.9
    python -m engine evaluate --specs settings.json --batch 20 --out results

The seed selects the problems of a family, all of them with structures that are not in the training
data. An answer has the length of the problem's own text, rounded up to a block, unless
--gen-length is given. Prints a table and, with --json, one JSON document as the last line:
{"environment", "rows": [{"accuracy", "standard_error", "correct", "nfe", "tokens_per_s", "spec",
...}]}.

--specs reads a JSON list of {"name", fields of a spec}. The first is the baseline: every row is
compared with it problem by problem, and all are timed in turn on long prompts. All rows have the
same end-of-text rule. --out writes table.json and table.md into a folder. The tables of
assets/results are made by `python -m engine tables`.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from engine import catalog
from engine.batch.flags import add_spec_flags, spec_from_flags
from engine.batch.settings import read_specs
from engine.config.spec import RunSpec
from engine.core.command_line import command_parser
from engine.core.files import ASSETS
from engine.core.tables import DAGGER_NOTE
from engine.evaluate import comparison
from engine.evaluate.exam import evaluate, summarise
from engine.guider.model import Guider
from engine.models.loading.families import named_checkpoints
from engine.serve import environment
from engine.serve.lane import LoadedModel
from engine.serve.model_pool import ModelPool
from engine.tiny.corpus import exam_questions, families


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command; `arguments` default to those of the process."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    parser = _parser()
    args = parser.parse_args(given)
    folders, args.model = named_checkpoints(args.model, ASSETS)
    torch.set_num_threads(args.threads)
    try:
        document = _compare(args, folders, given) if args.specs else _evaluate(args, folders)
    except ValueError as error:
        raise SystemExit(f"error: {error}") from None
    if args.json:
        print(json.dumps(document))


def _evaluate(args: argparse.Namespace, folders: Mapping[str, Path]) -> dict[str, Any]:
    (spec,) = catalog.with_end_of_text_rules([spec_from_flags(args)])
    model = _load(folders, spec)
    questions = exam_questions(args.problems, spec.seed, args.shots, args.family)
    row = summarise(spec, evaluate(model, spec, questions, args.batch, not args.gen_length))
    row |= {"family": args.family, "shots": args.shots, "batch": args.batch}
    shown = ("problems", "accuracy", "standard_error", "nfe", "tokens_per_forward", "tokens_per_s")
    method = f"cache {spec.cache}, unmasker {spec.unmasker}"
    print(f"{spec.model}, {args.family}, {method}, {args.shots} worked examples")
    for name in shown:
        print(f"  {name:20}{row[name]:10.4f}")
    return {"environment": environment.describe(spec, model.digest), "rows": [row]}


def _compare(
    args: argparse.Namespace, folders: Mapping[str, Path], given: Sequence[str]
) -> dict[str, Any]:
    base = spec_from_flags(args)
    specs = comparison.check_rules(read_specs(args.specs, base))
    pool = ModelPool(folders)
    digest = pool.load_to_run(base).digest
    questions = exam_questions(args.problems, base.seed, args.shots, args.family)
    load, work = partial(_load, folders), (args.batch, args.workers, not args.gen_length)
    rows = list(comparison.compare(load, specs, questions, *work))
    long_prompts = exam_questions(args.timed, base.seed, args.timed_shots, args.family)
    speed = comparison.time_prompts(pool.load_to_run, specs, long_prompts)
    document = {
        "environment": environment.describe(base, digest),
        "command": shlex.join(["python", "-m", "engine", "evaluate", *given]),
        "rows": [row | {"family": args.family, "speed": speed.get(row["name"])} for row in rows],
    }
    text = _text(document, specs[0].spec, args)
    print(text)
    if args.out:
        args.out.mkdir(parents=True, exist_ok=True)
        (args.out / "table.json").write_text(json.dumps(document) + "\n", "utf-8")
        (args.out / "table.md").write_text(text, "utf-8")
    return document


def _text(document: dict[str, Any], spec: RunSpec, args: argparse.Namespace) -> str:
    """The table with its conditions and the command that made it."""
    where, rows = document["environment"], document["rows"]
    shown = [
        one | {"speed": row["speed"]}
        for one, row in zip(comparison.by_family({args.family: rows}), rows, strict=True)
    ]
    return (
        f"{comparison.markdown(shown)}\n{args.problems} held-out problems, the same for every row; "
        f"{DAGGER_NOTE} End of text: {spec.eos}. "
        "From `forwards` on: another, longer task "
        f"({comparison.TIMED_LENGTH}-token answers, {args.timed_shots} worked examples, "
        f"{args.timed} prompts, one at a time), ratios to the first row side by side. "
        f"{where['device_name']}, {where['threads']} thread(s), {where['dtype']}, torch "
        f"{where['torch']}, checkpoint `{where['checkpoint'][:12]}`.\n\n`{document['command']}`\n"
    )


def _load(folders: Mapping[str, Path], spec: RunSpec) -> LoadedModel | Guider:
    return ModelPool(folders).load_to_run(spec)


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("evaluate", __doc__)
    parser.add_argument("--problems", type=int, default=500, help="number of problems")
    parser.add_argument(
        "--family",
        choices=tuple(families()),
        default="word_problems",
        help="family of the problems",
    )
    parser.add_argument("--shots", type=int, default=0, help="worked examples before each problem")
    parser.add_argument(
        "--batch",
        type=int,
        default=1,
        help="problems decoded in one batch; forwards and FLOPs are a problem's own at 1",
    )
    parser.add_argument("--threads", type=int, default=1, help="torch threads")
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    parser.add_argument("--workers", type=int, default=1, help="--specs: parallel processes")
    parser.add_argument("--specs", type=Path, help="JSON file of settings to compare")
    parser.add_argument(
        "--timed", type=int, default=5, help="--specs: number of long prompts to time"
    )
    parser.add_argument("--timed-shots", type=int, default=8, help="worked examples in each")
    parser.add_argument("--out", type=Path, help="--specs: folder for table.json and table.md")
    add_spec_flags(parser)
    return parser


if __name__ == "__main__":
    main()
