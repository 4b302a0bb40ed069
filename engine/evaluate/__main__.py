"""Evaluate run settings on the exam of the embedded corpus: one setting, or many side by side.

    python -m engine evaluate --model assets/models/tiny-llada --problems 500 --seed 7 --json
    python -m engine evaluate --cache dual --unmasker threshold --threshold.threshold 0.9
    python -m engine evaluate --specs settings.json --batch 20 --out results

The seed selects exam problems of a family, which training leaves out. An answer has the length of
the problem's own text, rounded up to a block, unless --gen-length is given. Prints a table and,
with --json, one JSON document as the last line:
{"environment", "rows": [{"accuracy", "standard_error", "correct", "nfe", "tokens_per_s", "spec",
...}]}.

--specs reads a JSON list of {"name", fields of a spec}. The first is the baseline: every row is
compared with it problem by problem, and all are timed in turn on long prompts. Without --gen-length
the gen_length and the steps of a row only say how many tokens a step commits. All rows have the
same end-of-text rule, and none has a `prompt`: the problems of the exam are decoded. The tables of
assets/results are made by `python -m engine tables`.

--out writes the document as table.json, with --specs also table.md, into a folder, and keeps each
sample there as soon as its batch is finished; the same command computes only what is missing, or
was decoded by another version of the code.
Rates of samples from several machines, or numbers of threads or processes, are null; `machine` of a
row says where they were measured.

    accelerate launch --multi_gpu --num_processes 8 -m engine.evaluate --device cuda --out results

Each process has a model of its own and --threads threads. Only the first one prints the results.
Without GPUs the same command runs over CPU processes; `accelerate launch --cpu` starts only one.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from engine import catalog
from engine.batch.flags import OF_A_RECORDING, add_spec_flags, spec_from_flags
from engine.batch.settings import NamedSpec, check_bare, check_rules, read_specs
from engine.config.spec import RunSpec
from engine.core.command_line import (
    command_parser,
    failure,
    make_out,
    not_negative,
    positive,
    refuse_flags,
    thread_count,
    without_traceback,
)
from engine.core.files import ASSETS, write_atomically
from engine.core.tables import DAGGER_NOTE
from engine.distributed.processes import Processes
from engine.evaluate import comparison
from engine.evaluate.exam import ExamResult, Questions, resized, summarise
from engine.evaluate.sharing.shared_exam import Sample, SharedExam, rates_removed
from engine.guider.model import Guider
from engine.models.loading.families import named_checkpoints
from engine.serve import environment
from engine.serve.guider_pool import check_rule
from engine.serve.loaded_model import LoadedModel, check_context
from engine.serve.model_pool import ModelPool
from engine.tiny.corpus import exam_questions, example_counts, families
from engine.tiny.suite import DEFAULT_FAMILY

OF_SPECS = ("timed", "timed_shots")  # flags


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command; `arguments` default to those of the process."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    parser = _parser()
    args = parser.parse_args(given)
    if not args.specs:
        reason = "only the rows of --specs are timed; leave it out"
        refuse_flags(parser, args, OF_SPECS, reason)
    if not args.timed:
        reason = "no prompt is timed with --timed 0; leave it out"
        refuse_flags(parser, args, ["timed_shots"], reason)
    refuse_flags(parser, args, OF_A_RECORDING, "an exam is not recorded; leave it out")
    folders, args.model = named_checkpoints(args.model, ASSETS)
    torch.set_num_threads(args.threads)
    try:
        with Processes() as processes:
            _run(args, folders, given, processes)
    except (ValueError, OSError, RuntimeError) as error:
        raise failure(error, args) from None


def _run(
    args: argparse.Namespace,
    folders: Mapping[str, Path],
    given: Sequence[str],
    processes: Processes,
) -> None:
    if processes.count > 1 and args.workers > 1:
        raise ValueError("--workers must be 1 with a launcher, which starts the processes itself")
    if args.workers > 1 and not args.specs:
        raise ValueError("--workers: only the rows of --specs are divided; leave it out")
    if args.workers > 1 and args.out:
        raise ValueError(
            "--workers: the processes keep no samples in --out; start them with torchrun instead, "
            "or leave out one of the two"
        )
    make_out(args.out)
    start = time.perf_counter()
    shared = SharedExam(processes, args.out)
    if args.specs:
        document, text = _compare(args, folders, given, processes, shared)
    else:
        document, text = _evaluate(args, folders, processes, shared)
    if not processes.is_main:
        return
    document |= {"processes": processes.count, "wall_s": time.perf_counter() - start}
    print(text)
    if args.out:
        write_atomically(args.out / "table.json", (json.dumps(document) + "\n").encode())
        if args.specs:
            write_atomically(args.out / "table.md", text.encode())
        else:
            (args.out / "table.md").unlink(missing_ok=True)  # of an earlier comparison
    if args.json:
        print(json.dumps(document))


def _evaluate(
    args: argparse.Namespace,
    folders: Mapping[str, Path],
    processes: Processes,
    shared: SharedExam,
) -> tuple[dict[str, Any], str]:
    (spec,) = catalog.with_end_of_text_rules([spec_from_flags(args)])
    _check_exam(spec)
    spec = replace(spec, device=processes.device(spec.device))
    questions = exam_questions(args.problems, spec.seed, args.shots, args.family)
    model = _load(folders, spec)
    samples = shared.evaluate(model, spec, questions, args.batch, not args.gen_length)
    row = rates_removed(summarise(spec, [one.result for one in samples]), samples)
    row |= _of_exam(args)
    shown = ("problems", "accuracy", "standard_error", "nfe", "tokens_per_forward", "tokens_per_s")
    method = f"cache {spec.cache}, unmasker {spec.unmasker}"
    decoder = model.name if isinstance(model, Guider) else spec.model
    lines = [f"{decoder}, {args.family}, {method}, {example_counts(questions)}"]
    lines += [f"  {name:20}{row[name]:10.4f}" for name in shown if row[name] is not None]
    document = {"environment": environment.describe(spec, model.digest), "rows": [row]}
    return document, "\n".join(lines)


def _check_exam(spec: RunSpec) -> None:
    """Raise ValueError if a spec changes the problems, or records, which slows the runs.

    Also if its unmasker does not take its stop texts.
    """
    check_bare(spec, "specs", "an exam")
    for name in ("prompt", "suffix"):
        if getattr(spec, name):
            raise ValueError(f"{name}: it would change the problems of an exam; leave it out")
    check_rule(spec)
    if spec.record != "off":
        raise ValueError(
            f"record: {spec.record} is not for an exam; leave it out, or use python -m engine "
            "batch, which records runs of their own"
        )


def _of_exam(args: argparse.Namespace) -> dict[str, Any]:
    """What every row says of its exam."""
    return {"family": args.family, "shots": args.shots, "batch": args.batch}


def _compare(
    args: argparse.Namespace,
    folders: Mapping[str, Path],
    given: Sequence[str],
    processes: Processes,
    shared: SharedExam,
) -> tuple[dict[str, Any], str]:
    base = spec_from_flags(args)
    given_specs = check_rules(read_specs(args.specs, base))
    own = processes.devices(one.spec.device for one in given_specs)
    specs = [
        NamedSpec(one.name, replace(one.spec, device=own[one.spec.device])) for one in given_specs
    ]
    for one in specs:
        _check_exam(one.spec)
    questions = exam_questions(args.problems, base.seed, args.shots, args.family)
    long_prompts = exam_questions(args.timed, base.seed, args.timed_shots, args.family)
    pool, first = ModelPool(folders), specs[0].spec
    digest = pool.load_to_run(first).digest
    if long_prompts:
        _check_timed(pool, specs, long_prompts, args.timed_shots)
    load, work = partial(_load, folders), (args.batch, args.workers, not args.gen_length)
    if args.workers > 1:
        rows = list(comparison.compare(load, specs, questions, *work))
    else:
        rows = _shared_rows(load, specs, questions, work, shared)
    speed: dict[str, dict[str, Any]] = {}
    if processes.is_main:
        speed = comparison.time_prompts(pool.load_to_run, specs, long_prompts)
    processes.barrier()
    known = _of_exam(args)
    document = {
        "environment": environment.describe(first, digest),
        "command": shlex.join(["python", "-m", "engine", "evaluate", *given]),
        "rows": [row | known | {"speed": speed.get(row["name"])} for row in rows],
    }
    return document, _text(document, specs, args, questions, long_prompts)


def _check_timed(
    pool: ModelPool, specs: Sequence[NamedSpec], prompts: Questions, shots: int
) -> None:
    """Raise ValueError if a prompt to time and its answer exceed the context of a row's model.

    `shots` are the worked examples in each prompt, of which fewer may fit.
    """
    flag, fewer = ("--timed-shots", "fewer, or ") if shots else ("--timed", "")
    infos = {one.name: pool.run_info(one.spec) for one in specs}
    contexts = [info.max_length for info in infos.values() if info is not None]
    length = comparison.timed_length(specs, min(contexts, default=None))
    known = ((one, infos[one.name], prompt) for one in specs for _, prompt in prompts)
    for one, info, prompt in known:
        if info is not None:
            spec = resized(one.spec, prompt, length)
            tokens = len(pool.prompt(spec) or ())
            try:
                check_context(tokens, spec, info)
            except ValueError:
                raise ValueError(
                    f"{flag}: a prompt of {tokens} tokens and its answer of {length} exceed the "
                    f"context of {info.max_length}; give {fewer}--timed 0"
                ) from None


def _shared_rows(
    load: comparison.Load,
    specs: Sequence[NamedSpec],
    questions: Questions,
    work: tuple[int, int, bool],
    shared: SharedExam,
) -> list[dict[str, Any]]:
    found: list[list[Sample]] = []

    def exam(
        model: LoadedModel | Guider, spec: RunSpec, asked: Questions, batch: int, fit: bool
    ) -> list[ExamResult]:
        found.append(shared.evaluate(model, spec, asked, batch, fit))
        return [one.result for one in found[-1]]

    rows = list(comparison.compare(load, specs, questions, *work, exam))
    return [rates_removed(row, samples) for row, samples in zip(rows, found, strict=True)]


def _text(
    document: dict[str, Any],
    specs: Sequence[NamedSpec],
    args: argparse.Namespace,
    questions: Questions,
    timed: Questions,
) -> str:
    """The table of `questions` and `timed` ones, its conditions and the command that made it."""
    where, rows, speed = document["environment"], document["rows"], ""
    if timed:
        speed = (
            "From `forwards` on: another, longer task "
            f"({comparison.timed_length(specs)}-token answers, {example_counts(timed)}, "
            f"{args.timed} prompts, one at a time), ratios to the first row side by side. "
        )
    several = len({(one.spec.model, one.spec.dtype) for one in specs}) > 1
    shown = [
        one | {"speed": row["speed"]}
        for one, row in zip(comparison.by_family({args.family: rows}), rows, strict=True)
    ]
    return (
        f"{comparison.markdown(shown)}\n{args.problems} held-out problems, the same for every row, "
        f"{example_counts(questions)} before each; "
        f"{DAGGER_NOTE} End of text: {specs[0].spec.eos}. {speed}"
        f"{where['device_name']}, {where['threads']} thread(s), {where['dtype']}, torch "
        f"{where['torch']}, checkpoint `{where['checkpoint'][:12]}`"
        f"{' (format and checkpoint of the first row)' * several}.\n\n`{document['command']}`\n"
    )


def _load(folders: Mapping[str, Path], spec: RunSpec) -> LoadedModel | Guider:
    return ModelPool(folders).load_to_run(spec)


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("evaluate", __doc__)
    parser.add_argument("--problems", type=positive, default=500, help="number of problems")
    parser.add_argument(
        "--family",
        choices=tuple(families()),
        default=DEFAULT_FAMILY,
        help="family of the problems",
    )
    parser.add_argument(
        "--shots",
        type=not_negative,
        default=0,
        help="worked examples before each problem, as far as they fit",
    )
    parser.add_argument(
        "--batch",
        type=positive,
        default=1,
        help="problems decoded in one batch; forwards and FLOPs are a problem's own at 1; an "
        "autoregressive model decodes one at a time",
    )
    parser.add_argument("--threads", type=thread_count, default=1, help="torch threads")
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    parser.add_argument("--workers", type=positive, default=1, help="--specs: parallel processes")
    parser.add_argument("--specs", type=Path, help="JSON file of settings to compare")
    parser.add_argument(
        "--timed", type=not_negative, default=5, help="--specs: number of long prompts to time"
    )
    parser.add_argument(
        "--timed-shots", type=not_negative, default=comparison.TIMED_SHOTS,
        help="--specs: worked examples in each long prompt, as far as they fit",
    )  # fmt: skip
    parser.add_argument("--out", type=Path, help="folder of samples and tables, to resume from")
    add_spec_flags(
        parser,
        gen_length="Masked positions to decode; by default as many as a problem's own text needs.",
    )
    return parser


if __name__ == "__main__":
    with without_traceback():
        main()
