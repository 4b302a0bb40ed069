"""Predict how long an evaluation of five methods takes on several GPUs, without running it.

    python -m engine evaluation-plan --device h100 --gpus 8 32
    python -m engine evaluation-plan --write-page
    python -m engine evaluation-plan --model inclusionAI/LLaDA-MoE-7B-A1B-Instruct --gpus 8

The methods have the settings of their papers for the task, and all of them the same lengths in one
task. One sequence is decoded at a time on each GPU, and the time is that of the GPU with the most
problems; loading of weights and scoring are not counted. The times are computed from FLOPs, bytes
and rates of the device as in `python -m engine estimate`, and none of them was measured on a GPU.
--write-page renews the table of assets/results/evaluation-plan.md, which is of the defaults.
With another --model, the settings are those published for the default one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

from engine.config.spec import RunSpec
from engine.core.command_line import command_parser, failure, positive, refuse_flags
from engine.core.files import ASSETS
from engine.core.tables import markdown_table, percentage, update_section
from engine.estimate.devices import GPUS
from engine.estimate.estimate import Target, estimate, known_model
from engine.models.loading.registry import REGISTERED

MODEL = "GSAI-ML/LLaDA-8B-Instruct"
PAGE = ASSETS / "results" / "evaluation-plan.md"
LENGTHS = ("gen_length", "block_length", "steps")


@dataclass(frozen=True)
class Benchmark:
    """A task: `slug` in the names of presets, its problems, and the tokens assumed of a prompt."""

    title: str
    slug: str
    problems: int
    prompt_tokens: int


BENCHMARKS = (
    Benchmark("GSM8K", "gsm8k", 1_319, 900),
    Benchmark("MATH", "math", 5_000, 700),
    Benchmark("MBPP", "mbpp", 500, 600),
    Benchmark("HumanEval", "humaneval", 164, 150),
)
METHODS = {  # title: the preset, with the benchmark's slug in place of {}
    "dLLM-Cache": "dllm-cache-{}",
    "SPA-Cache": "spa-cache-{}",
    "DARE-KV, threshold 0.9": "dare-kv",
    "Fast-dLLM, dual cache, threshold 0.9": "fast-dual",
    "FlashDLM: FreeCache, guided": "flashdlm",
}
PLAIN = "plain decoding"


def specs(benchmark: Benchmark) -> dict[str, RunSpec]:
    """Plain decoding and the methods by title, with the lengths that dLLM-Cache has for the task.

    FreeCache's block is the answer.
    """
    known: dict[str, Mapping[str, Any]] = {
        one.name: one.fields for one in REGISTERED[MODEL].presets
    }
    base = {name: known[f"dllm-cache-{benchmark.slug}"][name] for name in LENGTHS}
    found = {PLAIN: RunSpec.from_dict({"dtype": "bfloat16"} | base)}
    for title, preset in METHODS.items():
        fields = dict(known[preset.format(benchmark.slug)]) | base | {"dtype": "bfloat16"}
        if "freecache.block" in fields:
            fields["freecache.block"] = base["gen_length"]
        found[title] = RunSpec.from_dict(fields)
    return found


@dataclass(frozen=True)
class Planned:
    """One method on one benchmark: seconds of a problem on one device, and assumptions."""

    benchmark: Benchmark
    method: str
    seconds: float
    tera_flops: float
    recomputed: float
    assumed: tuple[str, ...]

    def seconds_on(self, gpus: int) -> float:
        """Seconds of all problems on so many GPUs, each of which decodes whole problems."""
        return self.seconds * ceil(self.benchmark.problems / gpus)


def plan(device: str, model: str = MODEL) -> Iterator[Planned]:
    """Every method on every benchmark. Raises ValueError naming `device` or `model`."""
    for benchmark in BENCHMARKS:
        target = Target(model, known_model(model), benchmark.prompt_tokens)
        for method, spec in specs(benchmark).items():
            one = estimate(spec, target, device)
            yield Planned(
                benchmark, method, one["time"]["run_seconds"], one["flops"] / 1e12,
                one["recomputed"], tuple(one["assumed"]),
            )  # fmt: skip


def table(planned: Sequence[Planned], gpus: Sequence[int]) -> str:
    """Hours of every method and benchmark, the sums, and what was assumed."""
    rows = [
        (
            one.benchmark.title, one.method, f"{one.tera_flops:.0f}", percentage(one.recomputed, 0),
            *(_hours(one.seconds_on(count)) for count in gpus),
        )
        for one in planned
    ]  # fmt: skip
    whole = (sum(one.seconds_on(count) for one in planned) for count in gpus)
    rows.append(("all", "all", "", "", *map(_hours, whole)))
    head = (
        "task",
        "method",
        "TFLOPs a problem",
        "recomputed",
        *(f"{n} GPU{'s' * (n > 1)}" for n in gpus),
    )
    said = dict.fromkeys(text for one in planned for text in one.assumed if _general(text))
    lengths = [
        f"{one.title}: {one.problems:,} problems, prompts of {one.prompt_tokens} tokens assumed."
        for one in BENCHMARKS
    ]
    return "\n".join([markdown_table(head, rows), *(f"- {text}" for text in [*lengths, *said])])


def _general(text: str) -> bool:
    """Whether an assumption holds for all benchmarks, so that it is said once."""
    return not text.startswith("One prompt of")


def _hours(seconds: float) -> str:
    return f"{seconds / 60:.2g} min" if seconds < 5_700 else f"{seconds / 3600:.1f} h"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command; `arguments` default to those of the process."""
    parser = command_parser("evaluation-plan", __doc__)
    parser.add_argument("--device", choices=tuple(GPUS), default="h100", help="GPU of all machines")
    parser.add_argument("--model", default=MODEL, help="a listed model")
    parser.add_argument(
        "--gpus", type=positive, nargs="+", default=[1, 8, 32], help="numbers of GPUs"
    )
    parser.add_argument("--write-page", action="store_true", help="renew the page's table")
    args = parser.parse_args(arguments)
    if args.write_page:
        reason = "leave it out with --write-page, whose page is of the defaults"
        refuse_flags(parser, args, ("device", "model", "gpus"), reason)
    device = GPUS[args.device]
    other = "" if args.model == MODEL else f"{args.model} with the settings of {MODEL}. "
    text = f"{other}Predicted for {device.title} ({device.source}).\n\n"
    try:
        text += table(list(plan(args.device, args.model)), args.gpus)
        print(text)
        if args.write_page:
            update_section(PAGE, f"{text}\n", "plan")
    except (ValueError, OSError) as error:
        raise failure(error, args) from None


if __name__ == "__main__":
    main()
