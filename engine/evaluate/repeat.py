"""Repeat a race from its run card and compare the results with the card.

    python -m engine repeat driftscope-1a2b3c4d-run-card.json --out traces

--model names the folder of a checkpoint that is not embedded, whatever the card calls it, and
--image the file of an image, once for each image. Exits with status 1 if an answer, a checkpoint or
a guider differs from the card. The answer of a run that was stopped is not compared.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from engine.config.run_card import specs_of
from engine.config.spec import RaceSpec, RunSpec
from engine.core.command_line import command_parser, failure, make_out, thread_count
from engine.core.files import ASSETS, read_json
from engine.evaluate.record_examples import UnfinishedRunError, collect_traces, save_traces
from engine.models.loading.families import embedded_models
from engine.serve.session import Session
from engine.trace.trace import Trace
from engine.vision.picture import Picture


def repeat(
    session: Session, specs: dict[str, RunSpec], images: Mapping[str, Picture] | None = None
) -> dict[str, Trace]:
    """The traces of new runs of the lanes; `images` holds the pictures that they name."""
    if len(specs) == 2:
        return collect_traces(session.race(RaceSpec(**specs), images=images))
    lane, spec = next(iter(specs.items()))
    return collect_traces((lane, event) for event in session.run(spec, images=images))


def differences(card: Any, traces: dict[str, Trace]) -> list[str]:
    """The results that differ from the card, one line each."""
    lines = []
    for lane, trace in traces.items():
        row = card["lanes"][lane]
        if row["model"].get("digest") != trace.meta["environment"]["checkpoint"]:
            lines.append(f"lane {lane}: another checkpoint than the card's")
        guider = row.get("guider")
        if guider and guider.get("digest") != trace.meta["guider"].get("digest"):
            lines.append(f"lane {lane}: another guider than the card's")
        if not is_cut(row) and row["results"].get("text") != trace.meta["texts"][0]:
            lines.append(f"lane {lane}: another answer: {trace.meta['texts'][0]}")
    return lines


def is_cut(row: Any) -> bool:
    """Whether the run of a lane of a card did not come to its end."""
    return bool(row["results"].get("reason", "done") != "done")


def model_folders(model: Path | None, specs: Iterable[RunSpec]) -> dict[str, Path]:
    """The checkpoint folders by name; every model of a spec that is not embedded is in `model`.

    Raises ValueError naming `--model` if all are embedded.
    """
    folders = embedded_models(ASSETS)
    if model is None:
        return folders
    others = {spec.model: model for spec in specs if spec.model not in folders}
    if not others:
        raise ValueError("--model: the models of this card are embedded; leave it out")
    return folders | others


def read_pictures(
    session: Session, paths: Iterable[Path], specs: Iterable[RunSpec]
) -> dict[str, Picture]:
    """The pictures in files by name; ValueError naming `--image` if no spec has one of them."""
    wanted = {name for spec in specs for name in spec.images}
    found = {}
    for path in paths:
        picture = session.read_image(path.read_bytes())
        if str(picture.ref) not in wanted:
            raise ValueError(f"--image: {path} is no image of this card; leave it out")
        found[str(picture.ref)] = picture
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command; `arguments` default to those of the process."""
    parser = command_parser("repeat", __doc__, alone=True)
    parser.add_argument("card", type=Path, help="run card exported by the page")
    parser.add_argument("--model", type=Path, help="folder of the checkpoint, if not embedded")
    parser.add_argument(
        "--image", type=Path, action="append", default=[], help="file of an image of the prompt"
    )
    parser.add_argument("--out", type=Path, help="folder for the traces")
    parser.add_argument("--threads", type=thread_count, default=1, help="torch threads")
    args = parser.parse_args(arguments)
    torch.set_num_threads(args.threads)
    try:
        card = read_json(args.card, "card")
        specs = specs_of(card)
        make_out(args.out)
        session = Session(model_folders(args.model, specs.values()))
        traces = repeat(session, specs, read_pictures(session, args.image, specs.values()))
        found = differences(card, traces)
        _print_results(card, traces, found)
        if args.out:
            save_traces(traces, args.out)
            for lane in {"a", "b"} - traces.keys():  # of an earlier card
                (args.out / f"{lane}.npz").unlink(missing_ok=True)
    except (ValueError, OSError, RuntimeError, UnfinishedRunError) as error:
        raise failure(error, args) from None
    sys.exit(bool(found))


def _print_results(card: Any, traces: dict[str, Trace], found: Sequence[str]) -> None:
    """Print the answers of the lanes, and how they differ from those of the card."""
    for lane, trace in traces.items():
        print(f"lane {lane}: {trace.meta['texts'][0]}")
    cut = [lane for lane in traces if is_cut(card["lanes"][lane])]
    for lane in cut:
        print(f"lane {lane}: not compared, because the run of the card was not run to its end")
    same = "checkpoint" if len(cut) == len(traces) else "results"
    print("\n".join(found) or f"same {same} as on the card")
