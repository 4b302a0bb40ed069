"""Estimate FLOPs, memory and time of a run on a known model, without its weights.

    python -m engine estimate --model GSAI-ML/LLaDA-8B-Instruct --cache dllm_cache --device h100
    python -m engine estimate --model dream --cache d2_cache --device this --prompt-tokens 800

A model is a listed name, an embedded one, a folder, or a shape such as llada:layers=4,d=64.
--device is h100 (the default), h200, a100, rtx4090 or rtx3090, by published figures, or `this` for
this machine, whose rates are then measured with --threads threads. The settings are those of a run;
--dtype is bfloat16 unless it is given. What data decides (tokens a forward, rows chosen by values)
is assumed, and the assumption printed; --recorded FILE takes it from a trace.
"""

from __future__ import annotations

import json
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from engine.batch.flags import OF_A_RECORDING, add_spec_flags, spec_from_flags
from engine.core.command_line import command_parser, failure, refuse_flags, thread_count
from engine.core.files import ASSETS
from engine.core.tables import markdown_table, percentage
from engine.estimate.devices import GPUS, THIS_MACHINE
from engine.models.loading.families import embedded_models
from engine.models.loading.hub import Hub
from engine.models.loading.memory_estimate import gigabytes
from engine.serve.session import Session
from engine.trace.trace import Trace

PROMPT_TOKENS = 768
DEFAULTS = {
    "model": "GSAI-ML/LLaDA-8B-Instruct", "device": "h100", "dtype": "bfloat16",
    "gen_length": "256", "block_length": "32",
}  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command; `arguments` default to those of the process."""
    parser = _parser()
    args = parser.parse_args(arguments)
    if args.device != THIS_MACHINE:
        reason = f"only --device {THIS_MACHINE} is measured; leave it out"
        refuse_flags(parser, args, ["threads"], reason)
    reason = "an estimate counts no recorder; leave it out"
    refuse_flags(parser, args, ["record", *OF_A_RECORDING], reason)
    device, args.device = args.device, None
    model, args.model = args.model, None
    torch.set_num_threads(args.threads)
    session = Session(embedded_models(ASSETS), Hub())
    given = {"tokens_per_forward": args.tokens_per_forward, "share": args.share}
    try:
        found = session.estimate(
            spec_from_flags(args),
            model,
            device,
            prompt_tokens=args.prompt_tokens,
            assumptions={name: value for name, value in given.items() if value is not None},
            recorded=None if args.recorded is None else Trace.load(args.recorded),
        )
        _check_needed(given, found, args.recorded)
    except (ValueError, OSError) as error:
        raise failure(error, args) from None
    print(json.dumps(found) if args.json else report(found))


def _check_needed(
    given: Mapping[str, Any], found: Mapping[str, Any], recorded: Path | None
) -> None:
    """Raise ValueError naming the flag if an assumption was given that an estimate did not need.

    Also if none was left to take from the `recorded` run.
    """
    for name, value in given.items():
        if value is not None and found["assumptions"][name] is None:
            flag = f"--{name.replace('_', '-')}"
            raise ValueError(f"{flag}: these settings need no such assumption; leave it out")
    needed = [name for name, value in found["assumptions"].items() if value is not None]
    if recorded is not None and all(given[name] is not None for name in needed):
        why = "all that these settings need are given" if needed else "these settings need none"
        raise ValueError(f"--recorded: no assumption is taken from it, since {why}; leave it out")


def report(found: Mapping[str, Any]) -> str:
    """An estimate as text: a table, the nearest published figure and the assumptions."""
    lines = [
        f"{found['model']} in {found['dtype']}, prompt of {found['prompt_tokens']} tokens, on "
        f"{found['device']['title']}\n({found['device']['source']})\n",
        markdown_table(("quantity", "value"), _rows(found)),
    ]
    if found["memory"]["problem"]:
        lines.append(f"Too large: {found['memory']['problem']}.\n")
    near = found["published"]
    if near is not None:
        lines.append(
            f"Nearest published figure ({near['method']}, {near['table']}): {near['figure']}\n"
            f"  {near['conditions']}; {near['gpu']}; {near['lengths']}; shots: {near['shots']}\n"
            f"  differs or not stated: {', '.join(near['differs']) or 'nothing that is compared'}\n"
        )
    counted = "The counts follow from the settings." if found["exact"] else ""
    lines.append("\n".join(["Assumptions:", *(f"- {text}" for text in found["assumed"]), counted]))
    return "\n".join(lines)


def _rows(found: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The figures of an estimate in words."""
    parts = found["flops_by_part"]
    whole = max(found["flops"], 1)
    time, memory = found["time"], found["memory"]
    return [
        ("steps (forwards)", f"{found['steps']} ({found['forwards']})"),
        ("TFLOPs a step", f"{found['flops_per_step'] / 1e12:.4g}"),
        ("TFLOPs a position", f"{found['flops_per_position'] / 1e12:.4g}"),
        *((f"  {name}", percentage(count / whole)) for name, count in parts.items() if count),
        ("rows that enter a step", f"{found['rows']:.1f}"),
        *(
            (f"  {site} rows of a layer recomputed", f"{rows:.1f}")
            for site, rows in found["rows_by_site"].items()
        ),
        ("recomputed share", percentage(found["recomputed"])),
        ("bytes a step", gigabytes(int(found["bytes_per_step"]))),
        ("weights, cache, run", ", ".join(
            gigabytes(memory[f"{name}_bytes"]) for name in ("weights", "cache", "run"))),
        *(
            [("weights that a token uses", gigabytes(memory["active_weights_bytes"]))]
            if memory["active_weights_bytes"] < memory["weights_bytes"]
            else []
        ),
        ("predicted step", f"{time['step_ms']:.3g} ms (median {time['median_step_ms']:.3g})"),
        ("predicted run",
         f"{time['run_seconds']:.3g} s, {time['positions_per_s']:.3g} positions/s"),
        ("steps bound by memory", percentage(time["memory_bound_steps"], 0)),
    ]  # fmt: skip


def _parser() -> ArgumentParser:
    parser = command_parser("estimate", __doc__)
    add_spec_flags(parser, DEFAULTS, device=f"{', '.join(GPUS)} or {THIS_MACHINE}")
    parser.add_argument(
        "--prompt-tokens", type=int, default=PROMPT_TOKENS, help="tokens of the prompt"
    )
    parser.add_argument(
        "--tokens-per-forward", type=float,
        help="assumed tokens that a forward commits where confidence or a guider decides; at "
        "least 1",
    )  # fmt: skip
    parser.add_argument(
        "--share", type=float,
        help="assumed share of rows where values decide, which the printed assumptions name; from "
        "0 to 1",
    )  # fmt: skip
    parser.add_argument(
        "--recorded", type=Path,
        help="a trace (.npz) to take --tokens-per-forward and --share from, if not given",
    )  # fmt: skip
    parser.add_argument("--threads", type=thread_count, default=1, help="--device this: threads")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    return parser


if __name__ == "__main__":
    main()
