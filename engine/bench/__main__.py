"""Benchmark decoding methods, in turn within one run, with the bare matrix products they execute.

    python -m engine bench --suite cpu
    python -m engine bench --model assets/models/tiny-llada --specs assets/results/speed.json
    python -m engine bench --model llada:layers=12,d=256,heads=8,ffn=688,vocab=2048 --tokens 64

A model is a folder, a listed name, or a shape whose weights are drawn at random on the device; a
shape takes sizes that it leaves out from LLaDA-8B or Dream-7B. A model with block-causal attention
runs in blocks of its own size, with the caches for that attention. Each case first runs once
untimed, and its matrix products are recorded. Each round then runs every case and executes its
products again with torch's own routines into preallocated memory (the floor), and with the
engine's routine where that is another library. Times are wall-clock times of the steps; figures
are medians over the rounds, ratios medians of the rounds' ratios. Positions per second count every
committed position, also padding after the end of the text. Bytes per second count weights, keys and
values, read once by each product. On a CPU the peak memory is that of the process. Prints a table
and, as the last line, one JSON document.

--suite cpu: a small network, one thread. --suite gpu: LLaDA-8B, with targets.
--suite growth: time by prompt, answer, layers and batch.
--record LEVEL runs every case also with a recorder at that level.

On a CPU the routines of products and attention are those measured to be fastest on this machine.
They are printed after the table, with what the others would have cost. --kernels torch uses
torch's own only, as DRIFTSCOPE_KERNELS=torch does; --kernels measured takes the measured ones
whatever that variable says.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from engine.batch.settings import check_rules, read_specs
from engine.bench import growth, report, suite, targets
from engine.bench.models import BenchModels
from engine.bench.suite import CaseSpec
from engine.bench.trial import step_seconds
from engine.config.spec import RunSpec
from engine.core.command_line import (
    command_parser,
    failure,
    positive,
    refuse_flags,
    refuse_shorter,
    thread_count,
)
from engine.core.device import free_memory
from engine.core.tables import RESULTS_README, check_section, update_section
from engine.core.threads import best_threads, usable_cores
from engine.core.variables import KERNELS, only_torch_kernels
from engine.models.kernels.choice import TORCH
from engine.models.kernels.machine import machine_kernels
from engine.models.loading.random_weights import is_random_model
from engine.serve import environment

LEVELS = ("steps", "layers", "probe")
DEFAULT_TOKENS = 512  # of the prompt of a shape
TRIED_STEPS = 2  # steps by which numbers of threads are compared


@dataclass(frozen=True)
class Report:
    """What was measured, as Markdown and as data, and a spec that names the device."""

    text: str
    found: dict[str, Any]
    spec: RunSpec


def set_threads(count: str, case: CaseSpec) -> None:
    """Set the number of torch threads; `auto` takes the fastest one for the forwards of a case."""
    if count == "auto":
        work = partial(step_seconds, case.case(BenchModels()), TRIED_STEPS)
        count = str(best_threads(works=[work]))
        print(f"{count} of {usable_cores()} threads are fastest here")
        del work  # with its model
    torch.set_num_threads(int(count))
    free_memory()


def conditions(rounds: int, *specs: RunSpec) -> str:
    """Machine, versions and the sizes of all specs of a measurement, as a sentence."""
    where = environment.describe(specs[0], "")
    sizes = dict.fromkeys(f"{one.gen_length} in blocks of {one.block_length}" for one in specs)
    only = ", torch's routines only" if only_torch_kernels(os.environ) else ""
    return (
        f"{where['device_name']}, {where['threads']} thread(s), torch {where['torch']}{only}, "
        f"{rounds} round(s); answer of {' or '.join(sizes)}."
    )


def _cpu(args: argparse.Namespace) -> Report:
    cases = list(suite.cpu_suite(args.device or "cpu"))
    set_threads(args.threads, cases[0])
    rows, _ = suite.run_cases(cases, args.rounds)
    spec = cases[0].spec
    return Report(f"{report.table(rows)}\n{conditions(args.rounds, spec)}\n", {"rows": rows}, spec)


def _gpu(args: argparse.Namespace) -> Report:
    device = args.device or "cuda"
    is_gpu = device.startswith("cuda")
    if args.write_readme and not (is_gpu and torch.cuda.is_available()):
        raise ValueError(f"--write-readme: {device} is no GPU of this machine; nothing is written")
    if is_gpu and not torch.cuda.is_available():
        text = f"Not run: no {device} device was available.\n"
        return Report(text, {"rows": [], "targets": []}, RunSpec())
    cases = list(suite.gpu_suite(device))
    set_threads(args.threads, cases[0])
    rows, goals = suite.run_cases(cases, args.rounds, with_targets=True)
    spec = cases[0].spec
    where = f"{spec.dtype}, prompt of {suite.GPU_PROMPT}, {conditions(args.rounds, spec)}\n"
    tables = targets.table(goals), report.captured_table(rows), report.table(rows), where
    return Report("\n".join(tables), {"rows": rows, "targets": goals}, spec)


def _growth(args: argparse.Namespace) -> Report:
    first = next(suite.cpu_suite(args.device or "cpu"))
    set_threads(args.threads, first)
    rows = growth.measure_growth(first.spec.device, args.rounds)
    where = f"{growth.base_sizes()}; {conditions(args.rounds, first.spec)}"
    return Report(f"{growth.table(rows)}\n{where}\n", {"rows": rows}, first.spec)


def _model(parser: argparse.ArgumentParser, args: argparse.Namespace) -> Report:
    base = RunSpec(model=args.model, device=args.device or "cpu", dtype=args.dtype)
    info = BenchModels().info(args.model)
    base = suite.own_blocks(base, info)
    cases = list(suite.model_cases(base, info, args.tokens))
    if args.specs:
        cases = _cases_of(args.specs, base, args.tokens)
    if not any(is_random_model(one.spec.model) for one in cases):
        reason = "only a shape has a prompt of so many tokens; leave it out"
        refuse_flags(parser, args, ["tokens"], reason)
    if args.record:
        pairs = [(one, suite.with_recorder(one, args.record)) for one in cases]
        cases = [one for pair in pairs for one in pair]
    set_threads(args.threads, cases[0])
    rows, _ = suite.run_cases(cases, args.rounds)
    spec = cases[0].spec
    tokens = " or ".join(dict.fromkeys(str(row["prompt_tokens"]) for row in rows))
    sizes = conditions(args.rounds, *(one.spec for one in cases))
    where = f"{tokens} prompt tokens, {sizes}"
    return Report(f"{report.table(rows)}\n{where}\n", {"rows": rows}, spec)


def _cases_of(path: Path, base: RunSpec, tokens: int) -> list[CaseSpec]:
    """The cases of a file of settings. Raises ValueError if a shape is given a prompt."""
    named = check_rules(read_specs(path, base))
    for one in named:
        for field in ("prompt", "messages", "images"):
            if getattr(one.spec, field) and is_random_model(one.spec.model):
                raise ValueError(
                    f"specs: {one.name}: {field}: a shape gets --tokens random tokens as its "
                    "prompt; leave it out, or choose a checkpoint"
                )
    return [CaseSpec(one.name, one.spec, tokens) for one in named]


def _has_measured_routines(result: Report) -> bool:
    """Whether the runs could choose among routines of this CPU, which were measured for them."""
    measured = not only_torch_kernels(os.environ) and result.spec.device == "cpu"
    return measured and bool(result.found["rows"])


SUITES = {"cpu": _cpu, "gpu": _gpu, "growth": _growth}
OF_A_MODEL = ("specs", "record", "tokens", "dtype")  # flags
GPU_SECTION = "full size"  # of RESULTS_README


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command; `arguments` default to those of the process."""
    parser = _parser()
    args = parser.parse_args(arguments)
    if args.suite:
        refuse_flags(parser, args, OF_A_MODEL, "a suite has its own settings; leave it out")
    if args.write_readme and args.suite != "gpu":
        parser.error("--write-readme needs --suite gpu; python -m engine tables makes the others")
    if args.write_readme:
        refuse_shorter(parser, args, ["rounds"], "leave out --write-readme")
    if args.kernels:
        os.environ[KERNELS] = TORCH if args.kernels == TORCH else ""
    try:
        if args.write_readme:
            check_section(RESULTS_README, GPU_SECTION)
        result = SUITES[args.suite](args) if args.suite else _model(parser, args)
        print(result.text)
        if _has_measured_routines(result):
            print(report.kernel_table(machine_kernels(()).times))
        if args.write_readme:
            update_section(RESULTS_README, result.text, GPU_SECTION)
    except (ValueError, OSError) as error:
        raise failure(error, args) from None
    where = environment.describe(result.spec, "")
    document = {"suite": args.suite, "environment": where, "rounds": args.rounds}
    print(json.dumps(document | result.found))


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("bench", __doc__, alone=True)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--suite", choices=SUITES, help="the rows of a table of speed")
    what.add_argument("--model", default=RunSpec().model, help="folder, listed name, or shape")
    parser.add_argument("--specs", type=Path, help="--model: JSON list of settings to compare")
    parser.add_argument(
        "--tokens", type=positive, default=DEFAULT_TOKENS, help="--model: prompt tokens of a shape"
    )
    parser.add_argument("--device", help="default: cpu, or cuda for --suite gpu")
    parser.add_argument("--dtype", default=RunSpec().dtype, help="--model: the number format")
    parser.add_argument("--rounds", type=positive, default=3, help="timed runs of each case")
    parser.add_argument("--threads", type=_threads, default="1", help="torch threads, or auto")
    parser.add_argument(
        "--kernels", choices=("measured", TORCH),
        help=f"the fastest routines of this machine (the default, unless {KERNELS} says torch), "
        "or torch's own",
    )  # fmt: skip
    parser.add_argument("--record", choices=LEVELS, help="--model: also run with a recorder")
    parser.add_argument(
        "--write-readme", action="store_true", help=f"--suite gpu: update {RESULTS_README}"
    )
    return parser


def _threads(text: str) -> str:
    return text if text == "auto" else str(thread_count(text))


if __name__ == "__main__":
    main()
