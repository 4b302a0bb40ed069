"""Convert a run of another engine into a `driftscope-run` file.

Trajectories of d3LLM and pages of dLLM-RL's trace viewer can be converted, see
engine/trace/foreign/README.md. With a tokenizer, token ids get their texts. Canvases that are too
large for the page are written as final tokens with the step of each.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from engine.core.command_line import command_parser, failure, positive
from engine.core.files import atomic_file
from engine.models.loading.checkpoint import CheckpointError
from engine.models.tokenizer import Tokenizer
from engine.trace.file_format import MAX_JSON_BYTES
from engine.trace.foreign.document import ForeignRun, Token, read_run
from engine.trace.foreign.reader import as_document, parsed


def converted(path: Path, sample: int | None, folder: Path | None) -> dict[str, Any]:
    """The document of a run in a file, with the texts of a tokenizer's folder if one is given.

    `sample` counts the runs of a file from 1. Raises ValueError, CheckpointError or OSError.
    """
    document = as_document(parsed(path.read_bytes()), sample)
    if document is None:
        raise ValueError(
            f"file: {path.name} has none of the known formats; give a trajectory of d3LLM, a page "
            "of dLLM-RL's trace viewer or a driftscope-run file"
        )
    run = read_run(document)
    return document if folder is None else document | _texts(run, Tokenizer(folder))


def _texts(run: ForeignRun, tokenizer: Tokenizer) -> dict[str, Any]:
    """The fields of the texts and of the end of text of a run of ids."""
    ids = [token for token in run.tokens if isinstance(token, int)]
    if len(ids) < len(run.tokens):
        raise ValueError("tokenizer: the file has texts already; leave the option out")
    pieces = {i: tokenizer.piece(i).decode(errors="replace") for i in ids}
    ends = run.end_tokens or tuple(i for i in tokenizer.stop_ids if i in pieces)
    return {"vocabulary": {str(i): pieces[i] for i in sorted(pieces)}, "end_tokens": list(ends)}


def encoded(document: dict[str, Any]) -> bytes:
    """The JSON of a document, of at most MAX_JSON_BYTES: without canvases if these are larger.

    Steps after the last commit, which change nothing, are then left out unless they have times.
    Raises ValueError if the run is too large for the page.
    """
    data = _json(document)
    if len(data) > MAX_JSON_BYTES and "canvases" in document:
        data = _json(_without_canvases(document))
    if len(data) > MAX_JSON_BYTES:
        raise ValueError(
            f"file: the run has {len(data) / 1e6:.1f} MB as JSON, more than the "
            f"{MAX_JSON_BYTES // 10**6} MB that the page reads; take a shorter run"
        )
    return data


def _json(document: dict[str, Any]) -> bytes:
    return json.dumps(document, ensure_ascii=False).encode()


def _without_canvases(document: dict[str, Any]) -> dict[str, Any]:
    """The same run as final tokens with the step of each."""
    run = read_run(document)
    tokens: list[Token | None] = list(run.start)
    steps: list[int | None] = [None] * len(tokens)
    for step, commits in enumerate(run.commits, 1):
        for place, token in commits:
            tokens[place], steps[place] = token, step
    kept = {name: value for name, value in document.items() if name != "canvases"}
    return kept | {"tokens": tokens, "step_map": steps}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = command_parser("convert", __doc__)
    parser.add_argument("file", type=Path, metavar="FILE", help="the other engine's file")
    parser.add_argument("--out", type=Path, required=True, help="the file to write (.json)")
    parser.add_argument("--sample", type=positive, help="which run of the file, from 1")
    parser.add_argument("--tokenizer", type=Path, help="a checkpoint's folder, for token texts")
    args = parser.parse_args(arguments)
    try:
        document = converted(args.file, args.sample, args.tokenizer)
        if args.out.exists() and args.out.samefile(args.file):
            raise ValueError(f"--out: {args.out} is the other engine's file; name another")
        data = encoded(document)
        with atomic_file(args.out) as file:
            file.write(data)
    except (ValueError, OSError, CheckpointError) as error:
        raise failure(error, args) from None
