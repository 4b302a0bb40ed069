"""The app with a race of any size as the race that it shows first, in both lanes.

python -m tests.support.big_app LAYERS STEPS POSITIONS
"""

from __future__ import annotations

import sys
from pathlib import Path

from engine.core.files import ASSETS
from engine.models.loading.families import embedded_models
from engine.serve.session import Session
from inspector.files import export
from inspector.page.layout import build, launch_options
from inspector.run_store import RaceRecord
from tests.support.big_trace import make_synthetic_trace


def big_record(layers: int, steps: int, positions: int) -> RaceRecord:
    """A recorded race of which both lanes are the same trace, so that it is held once."""
    trace = make_synthetic_trace(layers, steps, positions)
    return RaceRecord(state="example", traces=dict.fromkeys("ab", trace))


def main() -> None:
    """Start the page; Gradio reads GRADIO_SERVER_PORT."""
    layers, steps, positions = map(int, sys.argv[1:])
    record = big_record(layers, steps, positions)

    def read_example(folder: Path) -> RaceRecord:
        return record

    export.read_example = read_example
    page = build(Session(embedded_models(ASSETS)), ASSETS / "examples")
    page.launch(**launch_options(page))


if __name__ == "__main__":
    main()
