"""example: record the finished race that the page shows before anything is pressed.

    python -m engine.example

Writes `assets/examples/a.npz` and `b.npz`, the default race of the embedded model.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from engine.events import Waiting
from engine.library import embedded_models
from engine.session import Session
from engine.trace import Trace

ASSETS = Path(__file__).parent.parent / "assets"


def record(session: Session) -> dict[str, Trace]:
    """The traces of both lanes of the session's default race."""
    traces = {"a": Trace(), "b": Trace()}
    for lane, event in session.race(session.default_race()):
        if not isinstance(event, Waiting):
            traces[lane].append(event)
    return traces


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=1)
    torch.set_num_threads(parser.parse_args().threads)
    folder = ASSETS / "examples"
    folder.mkdir(parents=True, exist_ok=True)
    for lane, trace in record(Session(embedded_models(ASSETS))).items():
        trace.save(folder / f"{lane}.npz")


if __name__ == "__main__":
    main()
