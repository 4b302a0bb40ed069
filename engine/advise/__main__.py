"""Propose settings of a cache method that keep what has to be kept.

    python -m engine advise --cache dllm_cache --family short_problems --keep 0.95
    python -m engine advise --cache dual,prefix --unmasker threshold --prompts questions.jsonl
    python -m engine advise --cache all --prompts questions.txt --of tokens --out advice

Two exact runs are recorded; from them and from a narrow model with random weights the time and the
loss of up to 48 settings of each method are predicted. The best predictions are run, in rounds, on
a third of the prompts (at most 24), beside the method's published settings. The best of those are
tested on the other prompts, which were not used before. The result has measured figures only.

--of says what is kept of plain decoding (the same settings without a cache): `tokens`, its text,
token by token; `answers`, its final answers; `accuracy`, its share of right answers, for prompts
with known answers. --random adds a search at random with as many settings.

--out keeps every run in runs.jsonl as it ends; the same command continues from there. advice.json
has all figures, table.md those of the final test, and run-card.json the race of the chosen setting,
which `python -m engine repeat` runs again. Control-C stops and shows what there is.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import torch

from engine.advise.advisor import Advice, Advisor
from engine.advise.kept import KINDS
from engine.advise.measuring import Progress
from engine.advise.report import CARD, advice_document, advice_table
from engine.advise.request import AdviceRequest
from engine.advise.search_space import ALL, named_caches
from engine.advise.service import check_prompts
from engine.batch.flags import (
    OF_A_RECORDING,
    add_prompt_flags,
    add_spec_flags,
    check_prompt_flags,
    prompts_from_flags,
    spec_from_flags,
)
from engine.batch.journal import Journal
from engine.batch.prompts import Prompt
from engine.core.command_line import (
    command_parser,
    failure,
    make_out,
    refuse_flags,
    thread_count,
)
from engine.core.control import STOPPED, Control, stopped_by_interrupt
from engine.core.files import ASSETS, write_atomically
from engine.models.base import ModelInfo
from engine.models.loading.families import named_checkpoints
from engine.serve.session import Session


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command; `arguments` default to those of the process."""
    parser = _parser()
    args = parser.parse_args(arguments)
    check_prompt_flags(parser, args)
    refuse_flags(parser, args, OF_A_RECORDING, "the exact runs are recorded whole; leave it out")
    folders, args.model = named_checkpoints(args.model, ASSETS)
    torch.set_num_threads(args.threads)
    try:
        advice = _advise(args, Session(folders))
        _show(advice, args.out)
    except (ValueError, OSError) as error:
        raise failure(error, args) from None
    if not advice.finished:
        raise SystemExit(STOPPED)


def _show(advice: Advice, out: Path | None) -> None:
    """Print the table; write it and the figures, if there is a folder."""
    text = advice_table(advice)
    print(text, end="")
    if out:
        document = advice_document(advice)
        files = {"advice.json": document}
        if document["chosen"]:
            files[CARD] = document["chosen"]["card"]
        else:
            (out / CARD).unlink(missing_ok=True)  # of an earlier search
        for name, data in files.items():
            write_atomically(out / name, (json.dumps(data) + "\n").encode())
        write_atomically(out / "table.md", text.encode())


def _advise(args: argparse.Namespace, session: Session) -> Advice:
    """Work on the request of the flags, with progress on standard error."""
    info = session.model_info(args.model)
    request, control = _request(args, info), Control()
    check_prompts(session, request.plain, request.prompts)
    make_out(args.out)
    journal = Journal(args.out and args.out / "runs.jsonl")
    run = partial(session.run, control=control)
    advisor = Advisor(run, session.environment, info, request, journal, control)
    with stopped_by_interrupt(control):
        for one in advisor.events():
            print(_progress(one), end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return advisor.advice


def _request(args: argparse.Namespace, info: ModelInfo) -> AdviceRequest:
    """The request of the flags. Raises ValueError naming the flag or the field."""
    if args.record not in (None, "off"):
        raise ValueError(
            "--record: leave it out; runs are timed without a recorder, and the exact runs record "
            "what the search needs"
        )
    caches = named_caches(args.cache or ALL, info)
    args.cache = None
    base, prompts = spec_from_flags(args), prompts_from_flags(args)
    return AdviceRequest(
        base, tuple(caches), tuple(prompts), args.keep, args.of or _kind(prompts),
        args.candidates, args.random, int(args.seed or 0),
    )  # fmt: skip


def _kind(prompts: Sequence[Prompt]) -> str:
    """What is kept unless it is said: accuracy if all answers are known, else final answers."""
    known = all(one.answer is not None for one in prompts)
    return KINDS[2] if known else KINDS[1]


def _progress(one: Progress) -> str:
    left = "" if one.seconds_left is None else f", about {one.seconds_left:.0f} s left"
    return f"\r{one.stage}: {one.done} of {one.total}{left}".ljust(79)


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("advise", __doc__, alone=True)
    add_prompt_flags(parser, problems=60)
    parser.add_argument("--keep", type=float, default=0.95, help="share that has to be kept")
    parser.add_argument("--of", choices=KINDS, help="what is kept; default: as the answers allow")
    parser.add_argument("--candidates", type=int, default=12, help="settings to run of each cache")
    parser.add_argument("--random", action="store_true", help="also search at random, to compare")
    parser.add_argument("--threads", type=thread_count, default=1, help="torch threads")
    parser.add_argument("--out", type=Path, help="folder for runs, advice and table")
    add_spec_flags(parser, cache="methods to search, separated by commas, or all (the default)")
    return parser


if __name__ == "__main__":
    main()
