"""The command line of the engine: `python -m engine COMMAND --help`."""

from __future__ import annotations

import gc
import importlib
import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Sequence

from engine.core.command_line import without_traceback

# Name of a command to its module and a description.
COMMANDS = {
    "evaluate": ("engine.evaluate.__main__", "accuracy of any settings on the embedded exam"),
    "batch": ("engine.batch.__main__", "many prompts under several settings, resumable"),
    "advise": ("engine.advise.__main__", "settings of a cache that keep what you want kept"),
    "fronts": (
        "engine.evaluate.fronts.__main__",
        "search of every cache, tested on held-out problems",
    ),
    "tables": ("engine.evaluate.measured_results", "most tables of assets/results, in one run"),
    "bench": ("engine.bench.__main__", "speed of methods side by side"),
    "sweep": ("engine.bench.ratio_sweep", "time of a step by dLLM-Cache's recompute ratio"),
    "estimate": ("engine.evaluate.estimate", "work and time of a run on a model, without weights"),
    "estimate-error": (
        "engine.evaluate.estimate_error",
        "estimates beside runs on this machine, and what the estimates assume",
    ),
    "evaluation-plan": (
        "engine.estimate.evaluation_plan",
        "how long an evaluation of five methods would take on several GPUs",
    ),
    "synthetic": (
        "engine.bench.synthetic_trace",
        "write a synthetic trace of any size; what recording and files cost",
    ),
    "costs": ("engine.bench.space_costs", "what large models need on a Space, computed"),
    "calibrate": ("engine.serve.calibrate", "the drifts that DARE needs for a checkpoint"),
    "examples": ("engine.evaluate.record_examples", "record the runs that ship with the app"),
    "convert": ("engine.evaluate.convert", "a run of another engine as a file that the page opens"),
    "repeat": ("engine.evaluate.repeat", "repeat a race from its run card and compare"),
    "causal-exam": ("engine.evaluate.causal_exam", "accuracy of an autoregressive model"),
    "train": ("engine.tiny.train", "train the embedded models"),
    "catalog": ("engine.catalog", "the table of methods"),
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command with the arguments that follow its name; without any, list the commands.

    Exits with status 2 if the name is unknown, and otherwise as `without_traceback` says.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    lines = [f"  {name:16} {about}" for name, (_, about) in COMMANDS.items()]
    parser = ArgumentParser(
        prog="python -m engine",
        description="commands:\n" + "\n".join(lines),
        formatter_class=RawDescriptionHelpFormatter,
    )
    parser.add_argument("command", choices=COMMANDS, metavar="COMMAND")
    with without_traceback():
        name = parser.parse_args(given[:1] or ["--help"]).command
        gc.disable()  # what is imported stays; to look for garbage in it takes half a second
        try:
            module = importlib.import_module(COMMANDS[name][0])
        finally:
            gc.freeze()  # no later collection looks through it, which would delay what is timed
            gc.enable()
        module.main(given[1:])


if __name__ == "__main__":
    main()
