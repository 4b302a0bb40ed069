"""Run the Language Model Evaluation Harness with the engine as its model `driftscope`.

    python -m engine.lm_eval --model driftscope --model_args pretrained=tiny-llada,cache=dual \
        --tasks driftscope_short_problems --apply_chat_template --limit 10 --output_path out

All flags are the harness's own (0.4.10 to 0.4.13; 0.4.9 does not import with transformers 5).
With --output_path every response is kept in its folder `driftscope` as soon as it is finished, and
the same command computes only what is missing; with --log_samples a run card of every text is
written beside it, unless max_gen_toks cuts the text short, in place of the cards of an earlier run
of the task. The figures of every task (answer tokens a second and a forward, share recomputed,
GFLOPs, peak memory) stand in the results under `config.driftscope`. Tasks of the embedded models
are found without --include_path.

    accelerate launch --multi_gpu --num_processes 8 -m engine.lm_eval --model driftscope ...

Each process has a model of its own, and a GPU of its own without --device or with --device cuda.
Without a GPU the CPU is used.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from engine.core.command_line import failure, without_traceback

TASKS = Path(__file__).parent / "tasks"
INSTALL = 'error: lm_eval is not installed; run pip install "lm_eval>=0.4.10,<0.5"'


def main(arguments: Sequence[str] | None = None) -> None:
    """Register the model and run the harness's command line."""
    if arguments is not None:
        sys.argv = ["lm_eval", *arguments]
    try:
        from lm_eval._cli import HarnessCLI
        from lm_eval.api.registry import register_model
        from lm_eval.utils import setup_logging
    except ModuleNotFoundError as error:
        if error.name != "lm_eval":
            raise
        raise SystemExit(INSTALL) from None
    from engine.lm_eval.model import DriftscopeLM

    register_model("driftscope")(DriftscopeLM)
    setup_logging()
    command = HarnessCLI()
    try:
        command.execute(adapted(command.parse_args()))
    except (ValueError, OSError, NotImplementedError, RuntimeError) as error:
        raise failure(error, argparse.Namespace()) from None


def adapted(args: argparse.Namespace) -> argparse.Namespace:
    """The harness's flags with our tasks, and with the folder of the samples beside its results.

    A device among the model's arguments becomes the flag `--device`.
    """
    if getattr(args, "command", None) not in ("run", None):
        return args
    if not getattr(args, "include_path", None):
        args.include_path = str(TASKS)
    output, model = getattr(args, "output_path", None), getattr(args, "model", None)
    given = dict(getattr(args, "model_args", None) or {})
    if model == "driftscope" and "device" in given:  # the harness passes its flag --device as well
        args.device = given.pop("device")
        args.model_args = given
    if output and model == "driftscope":
        folder = Path(output).parent if Path(output).suffix == ".json" else Path(output)
        own: dict[str, str | bool] = {"samples": str(folder / "driftscope")}
        own |= {"cards": True} if getattr(args, "log_samples", False) else {}
        args.model_args = own | given
    return args


if __name__ == "__main__":
    with without_traceback():
        main()
