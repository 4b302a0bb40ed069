"""The command line of the engine: `python -m engine COMMAND --help`."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

COMMANDS = {
    "evaluate": ("engine.evaluate.__main__", "accuracy of any settings on the embedded exam"),
    "bench": ("engine.bench.__main__", "speed of methods side by side"),
    "sweep": ("engine.bench.ratio_sweep", "time of a step by dLLM-Cache's recompute ratio"),
    "costs": ("engine.bench.space_costs", "what the large models cost on a Space, computed"),
    "calibrate": ("engine.serve.calibrate", "DARE's thresholds for a checkpoint"),
    "examples": ("engine.evaluate.record_examples", "record the runs that ship with the app"),
    "repeat": ("engine.evaluate.repeat", "repeat a race from its run card and compare"),
    "causal-exam": ("engine.evaluate.causal_exam", "accuracy of an autoregressive model"),
    "train": ("engine.tiny.train", "train the embedded models"),
    "catalog": ("engine.catalog", "the table of methods"),
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command with the arguments that follow its name.

    Exits with status 2 and the list of commands where the name is unknown.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    lines = [f"  {name:12} {about}" for name, (_, about) in COMMANDS.items()]
    parser = argparse.ArgumentParser(
        prog="python -m engine",
        description="commands:\n" + "\n".join(lines),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("command", choices=COMMANDS, metavar="COMMAND")
    name = parser.parse_args(given[:1]).command
    importlib.import_module(COMMANDS[name][0]).main(given[1:])


if __name__ == "__main__":
    main()
