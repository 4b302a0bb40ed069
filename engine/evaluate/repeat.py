"""repeat: run a race again from its run card, and say whether the same came out.

    python -m engine repeat driftscope-1a2b3c4d-run-card.json --out traces

Another model than the embedded ones is named by its folder with --model. Exits with 1 where an
answer, a checkpoint or a guider is not that of the card.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from engine.config.spec import RaceSpec, RunSpec
from engine.core.files import ASSETS
from engine.evaluate.record_examples import gather, write
from engine.models.loading.families import embedded_models
from engine.serve.session import Session
from engine.trace.trace import Trace


def specs_of(card: Any) -> dict[str, RunSpec]:
    """The specs of a run card by lane; ValueError for another document, or a branch."""
    try:
        specs = {lane: RunSpec.from_dict(card["lanes"][lane]["spec"]) for lane in card["lanes"]}
    except (KeyError, TypeError):
        raise ValueError("card: not a run card of Driftscope; export it again") from None
    if not specs or not set(specs) <= {"a", "b"}:
        raise ValueError("card: expected lanes a and b")
    if any(spec.start for spec in specs.values()):
        raise ValueError("card: a lane goes on from another run; repeat that one on the page")
    return specs


def repeat(session: Session, specs: dict[str, RunSpec]) -> dict[str, Trace]:
    """The traces of the lanes, run anew."""
    if len(specs) == 2:
        return gather(session.race(RaceSpec(**specs)))
    lane, spec = next(iter(specs.items()))
    return gather((lane, event) for event in session.run(spec))


def differences(card: Any, traces: dict[str, Trace]) -> list[str]:
    """What came out otherwise than the card says, a line each."""
    lines = []
    for lane, trace in traces.items():
        row = card["lanes"][lane]
        if row["model"].get("digest") != trace.meta["environment"]["checkpoint"]:
            lines.append(f"lane {lane}: another checkpoint than the card's")
        if (row.get("guider") or {}).get("digest") != trace.meta["guider"].get("digest"):
            lines.append(f"lane {lane}: another guider than the card's")
        if row["results"].get("text") != trace.meta["texts"][0]:
            lines.append(f"lane {lane}: another answer: {trace.meta['texts'][0]}")
    return lines


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; `arguments` default to those of the process."""
    parser = argparse.ArgumentParser(
        prog="python -m engine repeat",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("card", type=Path, help="run card, as the page exports it")
    parser.add_argument("--model", type=Path, help="folder of the checkpoint, if not embedded")
    parser.add_argument("--out", type=Path, help="folder for the traces")
    parser.add_argument("--threads", type=int, default=1, help="torch threads")
    args = parser.parse_args(arguments)
    torch.set_num_threads(args.threads)
    folders = embedded_models(ASSETS) | ({args.model.name: args.model} if args.model else {})
    try:
        card = json.loads(args.card.read_text("utf-8"))
        traces = repeat(Session(folders), specs_of(card))
        found = differences(card, traces)
    except (ValueError, OSError, KeyError) as error:
        raise SystemExit(f"error: {error}") from None
    for lane, trace in traces.items():
        print(f"lane {lane}: {trace.meta['texts'][0]}")
    if args.out:
        write(traces, args.out)
    print("\n".join(found) or "as on the card")
    sys.exit(bool(found))
