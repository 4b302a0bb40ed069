"""Estimates beside runs on this machine: FLOPs of every method, and the error of the times.

    python -m engine estimate-error --write-readme

Runs every cache on the embedded models and on shapes with random weights, one thread, and
estimates the same runs from the models' sizes and the rates of this machine. FLOPs must be equal
where no value of the model decides; where one does, the estimate takes its assumption from the run.
Also measures what the estimates assume by default: the tokens that each unmasker without a
schedule commits in a forward of tiny-llada. Writes assets/results/estimate.json and, with
--write-readme, the table of assets/results/README.md. With --models it runs on others instead, and
prints their rows only.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch

from engine.bench.models import BenchModels
from engine.bench.trial import Case, step_seconds
from engine.catalog import check_model, policies, unmaskers
from engine.config.spec import RunSpec
from engine.core.command_line import command_parser, failure
from engine.core.control import interrupted_later
from engine.core.events import StepEvent
from engine.core.files import check_writable, write_atomically
from engine.core.tables import (
    RESULTS_README,
    check_section,
    markdown_table,
    percentage,
    update_section,
)
from engine.estimate.assumptions import MEASURED, Assumptions
from engine.estimate.devices import THIS_MACHINE
from engine.estimate.estimate import Target, estimate, recomputed_in
from engine.estimate.recorded import share_of
from engine.generate.loop import Denoiser, denoise
from engine.models.base import ModelInfo
from engine.serve import environment
from engine.tiny.corpus import exam_questions

SHAPES = ("llada:layers=6,d=512,heads=8,ffn=1376,vocab=4096",
          "dream:layers=6,d=512,heads=8,kv=2,ffn=1376,vocab=4096",
          "sdar:layers=6,d=512,heads=8,kv=2,head=64,ffn=1376,vocab=4096,block=16")  # fmt: skip
MODELS = ("tiny-llada", "tiny-dream", *SHAPES)
PROMPT, LENGTH, BLOCK = 256, 64, 16
PROBLEMS, SEED, FAMILY = 8, 11, "short_problems"
EXTRA = ("dual+dare_o",)
SECTION = "estimates"


@dataclass(frozen=True)
class Compared:
    """An estimate beside its run: FLOPs, and seconds of the run; `exact`: the settings decide."""

    model: str
    name: str
    exact: bool
    flops: int
    run_flops: int
    seconds: float
    run_seconds: float

    @property
    def flops_error(self) -> float:
        """Estimated over counted FLOPs, less 1."""
        return self.flops / self.run_flops - 1

    @property
    def time_error(self) -> float:
        """Predicted over measured time, less 1."""
        return self.seconds / self.run_seconds - 1


def compare(models: BenchModels, spec: RunSpec, name: str) -> Compared:
    """Run a spec, estimate it with its own tokens a forward and recomputed share."""
    loaded = models.model(spec, PROMPT)
    spec, prompt = models.prompt(spec, PROMPT)
    case = Case(name, loaded, spec, [prompt])
    events = _events(case)
    target = Target(spec.model, loaded.adapter.info, len(prompt))
    given = _assumptions(spec, target, events)
    found = estimate(spec, target, THIS_MACHINE, given)
    measured = float(np.sum(step_seconds(case)))
    flops = sum(int(event.flops.sum()) for event in events)
    return Compared(
        spec.model, name, found["exact"], found["flops"], flops, found["time"]["run_seconds"],
        measured,
    )  # fmt: skip


def settings(model: str, info: ModelInfo) -> Iterator[tuple[str, RunSpec]]:
    """The compared settings of a model by name.

    They are every cache that its attention allows, and threshold decoding with two of them.
    """
    base = RunSpec(model=model, gen_length=LENGTH, block_length=BLOCK, steps=LENGTH)
    rows = [(cache, replace(base, cache=cache)) for cache in (*policies(), *EXTRA)]
    for cache in ("none", "frozen" if info.block_causal else "dual"):
        rows.append((f"{cache}, threshold", replace(base, cache=cache, unmasker="threshold")))
    for name, spec in rows:
        with suppress(ValueError):
            check_model(spec, info)
            yield name, spec


def tokens_per_forward(models: BenchModels) -> dict[str, float]:
    """Mean tokens a forward on tiny-llada, by unmasker, where confidence decides them."""
    found = {}
    for name, kind in unmaskers().items():
        if not kind().confidence_decides:
            continue
        steps = tokens = 0
        for row in exam_questions(PROBLEMS, SEED, 0, FAMILY):
            spec = RunSpec(
                gen_length=LENGTH, block_length=BLOCK, steps=LENGTH, unmasker=name, prompt=row[1]
            )
            loaded = models.model(spec, 1)
            events = _events(Case(name, loaded, *_prompted(models, spec)))
            steps += len(events)
            tokens += sum(int(np.isfinite(event.confidence).sum()) for event in events)
        found[name] = round(tokens / steps, 3)
    return found


def table(rows: Sequence[Compared]) -> str:
    """The comparison as Markdown."""
    head = ("model", "settings", "FLOPs of the run", "estimate", "run, ms", "estimate, ms", "error")
    return markdown_table(
        head,
        [
            (
                f"`{row.model}`", row.name + ("" if row.exact else " (assumed)"),
                f"{row.run_flops / 1e9:.4g} G",
                "equal" if row.flops == row.run_flops else percentage(row.flops_error, 1, "+"),
                f"{row.run_seconds * 1e3:.0f}", f"{row.seconds * 1e3:.0f}",
                percentage(row.time_error, 0, "+"),
            )
            for row in rows
        ],
    )  # fmt: skip


def summary(rows: Sequence[Compared]) -> dict[str, float]:
    """Median and largest error of the times, and how many exact rows have equal FLOPs."""
    errors = [abs(row.time_error) for row in rows]
    exact = [row for row in rows if row.exact]
    return {
        "median_time_error": float(np.median(errors)),
        "worst_time_error": max(errors),
        "exact": len(exact),
        "equal": sum(row.flops == row.run_flops for row in exact),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command; `arguments` default to those of the process."""
    parser = command_parser("estimate-error", __doc__, alone=True)
    parser.add_argument(
        "--models", nargs="+", help="names, folders or shapes; their rows are printed, not kept"
    )
    parser.add_argument("--write-readme", action="store_true", help=f"update {RESULTS_README}")
    args = parser.parse_args(arguments)
    if args.models and args.write_readme:
        parser.error("--write-readme: the table is that of the default models; leave out --models")
    torch.set_num_threads(1)
    try:
        if args.write_readme:
            check_section(RESULTS_README, SECTION)
        if not args.models:
            check_writable(MEASURED)
        models = BenchModels()
        text, document = _measure(models, args.models or MODELS)
        if not args.models:
            _keep(models, text, document, args.write_readme)
    except (ValueError, OSError) as error:
        raise failure(error, args) from None


def _measure(models: BenchModels, names: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """Compare all settings of the models and print the table; returns it and its figures."""
    rows: list[Compared] = []
    known = {name: models.model(RunSpec(model=name), PROMPT).adapter.info for name in names}
    for model, info in known.items():
        for name, spec in settings(model, info):
            rows.append(compare(models, spec, name))
            print(table(rows[-1:]).splitlines()[-1], flush=True)
    facts = summary(rows)
    text = f"{table(rows)}\n{_words(facts)}\n"
    print(text)
    document = {
        "environment": environment.describe(RunSpec(), ""), "summary": facts,
        "rows": [asdict(row) for row in rows],
    }  # fmt: skip
    return text, document


def _keep(models: BenchModels, text: str, document: dict[str, Any], write_readme: bool) -> None:
    """Measure the tokens of a forward, and write them, the figures and, if wanted, the table."""
    document |= {
        "assumed_from": f"tiny-llada, {PROBLEMS} problems, answer of {LENGTH} in blocks of {BLOCK}",
        "tokens_per_forward": tokens_per_forward(models),
    }
    with interrupted_later():
        write_atomically(MEASURED, (json.dumps(document, indent=1) + "\n").encode())
        if write_readme:
            update_section(RESULTS_README, text, SECTION)


def _words(facts: dict[str, float]) -> str:
    where = environment.describe(RunSpec(), "")
    middle, worst = (percentage(facts[f"{name}_time_error"], 0) for name in ("median", "worst"))
    return (
        f"FLOPs are equal in {facts['equal']} of the {facts['exact']} rows that the settings "
        f"decide. Error of the time of a run: median {middle}, largest {worst}. "
        f"{where['device_name']}, one thread, prompt of {PROMPT} tokens on a shape, answer of "
        f"{LENGTH} in blocks of {BLOCK}, rates of the machine measured before."
    )


def _events(case: Case) -> list[StepEvent]:
    return list(denoise(Denoiser(replace(case.job(), capturer=None))))


def _prompted(models: BenchModels, spec: RunSpec) -> tuple[RunSpec, list[list[int]]]:
    spec, prompt = models.prompt(spec, 1)
    return spec, [prompt]


def _assumptions(spec: RunSpec, target: Target, events: list[StepEvent]) -> Assumptions:
    """Those with which the estimate has the forwards and the recomputed share of the run."""
    tokens = spec.gen_length / len(events)
    share = share_of(spec, target, tokens, recomputed_in(events))
    return Assumptions(max(tokens, 1.0), share, "from the run itself")


if __name__ == "__main__":
    main()
