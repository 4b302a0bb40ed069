"""bench: methods side by side in one run, in turn, beside the bare matrix products they execute.

    python -m engine.bench --suite cpu
    python -m engine.bench --model assets/models/tiny-llada --specs assets/results/specs.json
    python -m engine.bench --model llada:layers=12,d=256,heads=8,ffn=688,vocab=2048 --tokens 64

A model is a folder, a listed name, or a shape with weights drawn at random on the device; sizes
that a shape leaves out are those of LLaDA-8B or Dream-7B. Every case is run once untimed, which
notes its matrix products; then each round runs every case and multiplies its products again by
torch's own routine into memory that is there already, which is the floor, and where the engine
multiplies by another library, by that too. Times are wall times of the steps; figures are
medians over the rounds, ratios medians of the rounds' ratios. Bytes a second are those of weights,
keys and values, read once by each product; on a CPU the peak is that of the process. Prints a
table and, last, one JSON document.

--suite cpu: a small network, one thread. --suite gpu: the published sizes, and what they must
reach. --suite growth: cost by prompt, answer, layers and batch, as a chart.
--record LEVEL runs every case with the recorder too, beside itself without.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import torch

from engine.bench import growth, report, suite, targets
from engine.bench.chart import svg
from engine.bench.models import BenchModels
from engine.bench.suite import Setting, read_entries
from engine.bench.trial import measure, seconds
from engine.config.spec import RunSpec
from engine.core.device import give_back
from engine.core.tables import write
from engine.core.threads import best_threads
from engine.serve import environment

LEVELS = ("steps", "layers", "probe")
REHEARSED = 2  # forwards by which a number of threads is judged
CHART = Path("assets/results/growth.svg")


@dataclass(frozen=True)
class Report:
    """What was measured: for people, as plain data, and the spec that tells where."""

    text: str
    found: dict[str, Any]
    spec: RunSpec


def run_settings(
    settings: Sequence[Setting], rounds: int, rated: bool = False
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Rows of settings, those of a model in rounds of their own, and the targets met.

    `rated`: the device's rates are measured in the same rounds, and there are targets.
    """
    found: list[dict[str, Any]] = []
    goals: list[dict[str, Any]] = []
    for _, some in groupby(settings, key=lambda one: one.spec.model):
        rows, rates = _rounds(list(some), rounds, rated)
        found += rows
        goals += targets.check(rows, rates) if rated else []
        give_back()
    return found, goals


def _rounds(
    settings: Sequence[Setting], rounds: int, rated: bool
) -> tuple[list[dict[str, Any]], dict[str, list[float]]]:
    models = BenchModels()
    cases = [one.case(models) for one in settings]
    adapter = cases[0].model.adapter
    others = targets.rates(adapter.device, adapter.dtype) if rated else {}
    trials, measured = measure(cases, rounds, others)
    return report.rows(trials), measured


def set_threads(asked: str, setting: Setting) -> None:
    """Take a number of torch threads, or with `auto` the one fastest at a setting's forwards."""
    threads = _fastest(setting) if asked == "auto" else int(asked)
    torch.set_num_threads(threads)
    give_back()
    if asked == "auto":
        print(f"{threads} of {os.cpu_count()} threads are fastest here")


def _fastest(setting: Setting) -> int:
    case = setting.case(BenchModels())
    return best_threads(works=[partial(seconds, case, REHEARSED)])


def place(spec: RunSpec, rounds: int) -> str:
    """Where figures were measured, for people."""
    told = environment.describe(spec, "")
    return (
        f"{told['device_name']}, {told['threads']} thread(s), torch {told['torch']}, {rounds} "
        f"round(s); answer of {spec.gen_length} in blocks of {spec.block_length}."
    )


def speed_text(found: Sequence[dict[str, Any]], where: str) -> str:
    """The section that `--suite cpu` renews."""
    names = [(one.group, one.name) for one in suite.cpu("cpu")]
    return f"{report.table(names, found)}\n{where}\n"


def size_text(found: Sequence[dict[str, Any]], goals: Sequence[dict[str, Any]], where: str) -> str:
    """The section that `--suite gpu` renews."""
    names = [(one.group, one.name) for one in suite.gpu("cuda")]
    tables = targets.table(goals), report.captured_table(found), report.table(names, found)
    return "\n".join(tables) + f"\n{where}\n"


def growth_text(where: str) -> str:
    """The section that `--suite growth` renews; nothing is drawn where `where` is empty."""
    if not where:
        return "Not run.\n"
    return f"![Milliseconds of a forward by prompt, answer, layers and batch]({CHART})\n\n{where}\n"


def _cpu(args: argparse.Namespace) -> Report:
    settings = list(suite.cpu(args.device or "cpu"))
    set_threads(args.threads, settings[0])
    found, _ = run_settings(settings, args.rounds)
    spec = settings[0].spec
    return Report(speed_text(found, place(spec, args.rounds)), {"rows": found}, spec)


def _gpu(args: argparse.Namespace) -> Report:
    device = args.device or "cuda"
    if device.startswith("cuda") and not torch.cuda.is_available():
        text = size_text([], [], f"No {device} device was at hand.")
        return Report(text, {"rows": [], "targets": []}, RunSpec())
    settings = list(suite.gpu(device))
    set_threads(args.threads, settings[0])
    found, goals = run_settings(settings, args.rounds, rated=True)
    spec = settings[0].spec
    where = f"{spec.dtype}, prompt of {suite.GPU_PROMPT}, {place(spec, args.rounds)}"
    return Report(size_text(found, goals, where), {"rows": found, "targets": goals}, spec)


def _growth(args: argparse.Namespace) -> Report:
    first = next(suite.cpu(args.device or "cpu"))
    set_threads(args.threads, first)
    found = growth.measured(first.spec.device, args.rounds)
    if args.write_readme:
        CHART.write_text(svg(growth.panels(found), "ms a forward"), "utf-8")
    print(growth.table(found))
    others = ", ".join(f"{axis} {value}" for axis, value in growth.BASE.items())
    where = f"{others} where they are not varied; {place(first.spec, args.rounds)}"
    return Report(growth_text(where), {"rows": found}, first.spec)


def _model(args: argparse.Namespace) -> Report:
    base = RunSpec(model=args.model, device=args.device or "cpu", dtype=args.dtype)
    settings = list(suite.methods(base, args.tokens))
    if args.specs:
        entries = read_entries(args.specs, base)
        settings = [Setting(entry.name, entry.spec, args.tokens) for entry in entries]
    if args.record:
        pairs = [(one, suite.recorded(one, args.record)) for one in settings]
        settings = [one for pair in pairs for one in pair]
    set_threads(args.threads, settings[0])
    found, _ = run_settings(settings, args.rounds)
    where = f"{found[0]['prompt_tokens']} prompt tokens, {place(settings[0].spec, args.rounds)}"
    table = report.table([(one.group, one.name) for one in settings], found)
    return Report(f"{table}\n{where}\n", {"rows": found}, settings[0].spec)


SUITES = {"cpu": ("speed", _cpu), "gpu": ("full size", _gpu), "growth": ("growth", _growth)}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; `arguments` default to those of the process."""
    parser = _parser()
    args = parser.parse_args(arguments)
    if args.suite and (args.specs or args.record):
        parser.error("--specs and --record go with --model; a suite has settings of its own")
    if args.write_readme and not args.suite:
        parser.error("--write-readme goes with --suite; only those have a table there")
    section, run = SUITES[args.suite] if args.suite else ("", _model)
    try:
        report = run(args)
    except ValueError as error:
        raise SystemExit(f"error: {error}") from None
    print(report.text)
    if args.write_readme:
        write(report.text, section)
    where = environment.describe(report.spec, "")
    document = {"suite": args.suite, "environment": where, "rounds": args.rounds}
    print(json.dumps(document | report.found))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m engine bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--suite", choices=SUITES, help="the rows of a table of the README")
    what.add_argument("--model", default=RunSpec().model, help="folder, listed name, or shape")
    parser.add_argument("--specs", type=Path, help="--model: JSON list of settings to compare")
    parser.add_argument("--tokens", type=_from_one, default=512, help="of a shape's prompt")
    parser.add_argument("--device", help="cpu, or cuda as the suite gpu has it")
    parser.add_argument("--dtype", default=RunSpec().dtype, help="--model: the number format")
    parser.add_argument("--rounds", type=_from_one, default=3)
    parser.add_argument("--threads", type=_threads, default="1", help="torch threads, or auto")
    parser.add_argument("--record", choices=LEVELS, help="--model: also measure what it costs")
    parser.add_argument("--write-readme", action="store_true", help="--suite: renew the table")
    return parser


def _from_one(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} should be a whole number from 1 on")
    return int(text)


def _threads(text: str) -> str:
    return text if text == "auto" else str(_from_one(text))


if __name__ == "__main__":
    main()
