"""evaluate: sit the exam of the embedded corpus with any run settings.

    python -m engine.evaluate --model assets/models/tiny-llada --problems 500 --seed 7 --json
    python -m engine.evaluate --cache dual --unmasker threshold --threshold.threshold 0.9

Problems are drawn from the seed out of the class that training never sees. Prints a table and,
with --json, one JSON document as the last line: {"environment", "rows": [{"accuracy",
"standard_error", "correct", "nfe", "tokens_per_s", "spec", ...}]}.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from engine import catalog, environment
from engine.eos import text_length
from engine.fields import Scalar, describe_fields
from engine.lane import LoadedModel, make_job
from engine.library import Library
from engine.loop import Denoiser, denoise
from engine.metrics import Tally
from engine.spec import RunSpec
from engine.tiny import corpus
from engine.tiny.exam import exam

EXAM: dict[str, Scalar] = {"gen_length": 64, "block_length": 32}


@dataclasses.dataclass(frozen=True)
class Sitting:
    """One problem sat: its answer, whether it is right, forwards, tokens and engine time."""

    text: str
    right: bool
    nfe: int
    tokens: int
    positions: int
    ms: float


def sit(
    model: LoadedModel,
    spec: RunSpec,
    questions: list[tuple[corpus.Problem, str]],
    batch: int = 1,
) -> Iterator[Sitting]:
    """Decode every problem; a batch shares its forwards, so `ms` is split evenly over it."""
    for start in range(0, len(questions), batch):
        group = questions[start : start + batch]
        asked = [dataclasses.replace(spec, prompt=prompt) for _, prompt in group]
        job = make_job(model, spec, [model.tokenizer.encode_spec(one) for one in asked])
        state, tally = Denoiser(job), Tally(job.canvas.shape[1])
        for event in denoise(state):
            tally.add(event)
        for row, (problem, _) in enumerate(group):
            answer = state.ids[row, job.prompt_length :]
            tokens = text_length(answer, state.run.info.stop_ids)
            text = model.tokenizer.decode(answer[:tokens].tolist())
            right = corpus.correct(text, problem)
            ms = tally.total_ms / len(group)
            yield Sitting(text, right, tally.steps, tokens, len(answer), ms)


def summarise(spec: RunSpec, sittings: list[Sitting]) -> dict[str, Any]:
    """One row of the table: accuracy with its binomial standard error, means and rates."""
    n = len(sittings)
    right = sum(one.right for one in sittings)
    seconds = sum(one.ms for one in sittings) / 1e3
    accuracy = right / n
    return {
        "accuracy": accuracy,
        "standard_error": math.sqrt(accuracy * (1 - accuracy) / n),
        "correct": right,
        "problems": n,
        "nfe": float(np.mean([one.nfe for one in sittings])),
        "tokens_per_forward": sum(o.tokens for o in sittings) / sum(o.nfe for o in sittings),
        "tokens_per_s": sum(one.tokens for one in sittings) / seconds,
        "positions_per_s": sum(one.positions for one in sittings) / seconds,
        "ms_per_problem": 1e3 * seconds / n,
        "spec": spec.to_dict(),
    }


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


def main() -> None:
    """The command line."""
    args = _parser().parse_args()
    folder = Path(args.model or "assets/models/tiny-llada")
    args.model = folder.name
    torch.set_num_threads(args.threads)
    try:
        spec = spec_from_flags(args, EXAM)
        model = Library({folder.name: folder}).load(spec)
        questions = exam(args.problems, spec.seed, args.shots)
        sittings = list(sit(model, spec, questions, args.batch))
    except ValueError as error:
        raise SystemExit(f"error: {error}") from None
    row = summarise(spec, sittings) | {"shots": args.shots, "batch": args.batch}
    shown = ("problems", "accuracy", "standard_error", "nfe", "tokens_per_forward", "tokens_per_s")
    print(f"{spec.model}, cache {spec.cache}, unmasker {spec.unmasker}, {args.shots} shots")
    for name in shown:
        print(f"  {name:20}{row[name]:10.4f}")
    if args.json:
        where = environment.describe(spec, model.digest)
        print(json.dumps({"environment": where, "rows": [row]}))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--problems", type=int, default=500, help="how many to draw")
    parser.add_argument("--shots", type=int, default=0, help="worked examples before each")
    parser.add_argument("--batch", type=int, default=1, help="problems decoded together")
    parser.add_argument("--threads", type=int, default=1, help="torch threads")
    parser.add_argument("--json", action="store_true", help="end with one JSON line")
    add_spec_flags(parser)
    return parser


if __name__ == "__main__":
    main()
