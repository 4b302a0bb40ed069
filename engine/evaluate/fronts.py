"""Search the settings of every cache method and test them on held-out problems.

    python -m engine fronts --out FOLDER --estimate
    python -m engine fronts --out FOLDER
    python -m engine fronts --out FOLDER --publish

For each method: a search, a search at random with the same budget, and a test of the best settings
beside the method's defaults and its published presets on problems that the search did not use.
Every run is timed in turn with plain decoding. --out keeps every run in runs.jsonl as it ends, and
fronts.json after each method; the same command continues from there, also with more --held-out.
--publish also writes fronts.json, fronts.svg and a section of README.md in assets/results.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch

from engine.advise.advisor import ORIGINS, Advice, Advisor, CacheAdvice
from engine.advise.measuring import Measured
from engine.advise.report import advice_document
from engine.advise.request import (
    LEAST_CANDIDATES,
    MOST_SEARCH_PROMPTS,
    AdviceRequest,
    runs_of_rounds,
    searched_prompts,
)
from engine.advise.space import grid, searchable
from engine.batch.journal import Journal
from engine.batch.outcome import outcome_of
from engine.batch.prompts import drawn_prompts
from engine.batch.settings import with_fields
from engine.batch.statistics import bootstrap_interval, mcnemar
from engine.config.spec import RunSpec
from engine.core.command_line import command_parser
from engine.core.control import Control, stopped_by_interrupt
from engine.core.files import ASSETS, write_atomically
from engine.core.tables import RESULTS_README, update_section
from engine.evaluate.fronts_text import section, svg
from engine.models.base import ModelInfo
from engine.models.loading.families import embedded_models
from engine.serve.session import Session
from engine.tiny.suite import DEFAULT_FAMILY

COMMAND = "python -m engine fronts"
SHOTS = 0  # worked examples before each problem, as in the tables of accuracy
# Answers to chained word problems have at most 83 tokens.
LENGTHS = {"gen_length": 96, "block_length": 32, "steps": 96}
TESTED = 6  # most settings of a final test
BUDGET = 0.2  # share of the grid's runs that a search may use


def requests(args: argparse.Namespace, info: ModelInfo) -> Iterator[AdviceRequest]:
    """The request of each method for a model; raises ValueError naming the flag or the cache."""
    count = args.held_out + min(max(args.held_out // 2, 2), MOST_SEARCH_PROMPTS)
    prompts = tuple(drawn_prompts(DEFAULT_FAMILY, count, args.seed, SHOTS))
    base = with_fields(RunSpec(model=args.model), LENGTHS)
    searched = searched_prompts(count)
    for cache in args.caches.split(",") if args.caches else searchable(info):
        candidates = affordable(args.candidates, len(grid(base, cache)), searched)
        yield AdviceRequest(
            base, (cache,), prompts, args.keep, "accuracy", candidates, True, args.seed
        )


def affordable(most: int, settings: int, prompts: int) -> int:
    """The most candidates, up to `most`, whose rounds need less than BUDGET of the grid's runs.

    The grid runs each of its `settings` on all `prompts` of the search. At least LEAST_CANDIDATES.
    """
    counts = range(most, LEAST_CANDIDATES, -1)
    fit = (n for n in counts if runs_of_rounds(n, prompts) < BUDGET * settings * prompts)
    return next(fit, LEAST_CANDIDATES)


def compared(chosen: Measured, other: Measured) -> dict[str, Any]:
    """The chosen setting against another one on the same problems.

    `ratio` is the median over the problems of the ratio of both speed-ups over plain decoding,
    `low` and `high` the 95 % bootstrap interval of the mean logarithm's power; `gained`, `lost` and
    `p` are those of McNemar's test.
    """
    both = list(zip(chosen.pairs, other.pairs, strict=True))
    ratios = np.array([(p.ms / own.ms) / (q.ms / two.ms) for (p, own), (q, two) in both])
    low, high = np.exp(bootstrap_interval(np.log(ratios).tolist()))
    gained = sum(bool(own.right) and not two.right for (_, own), (_, two) in both)
    lost = sum(bool(two.right) and not own.right for (_, own), (_, two) in both)
    return {
        "name": other.named.name, "ratio": float(np.median(ratios)), "low": float(low),
        "high": float(high), "gained": gained, "lost": lost, "p": mcnemar(gained, lost),
    }  # fmt: skip


def bar(found: CacheAdvice, prompts: int) -> dict[str, Any]:
    """The chosen setting against the default, the fastest accepted published and random settings.

    A comparison is None if there is no chosen setting or the other one was not accepted. `budget`
    is the share of the grid's runs, with `prompts` problems each, that the search used. `met` says
    that a setting was chosen, that it is at least as fast as each of the others, and that the
    search used less than BUDGET.
    """
    held, share = found.held_back, found.search.runs / (found.search.grid * prompts)
    if found.chosen is None:
        return {"budget": share, "met": False}
    own = held[found.chosen]
    accepted = [held[name] for name in found.accepted]
    rivals = {"default": [one for one in accepted if one.named.name == found.search.references[0]]}
    for name, origin in (("published", ORIGINS[0]), ("random", ORIGINS[2])):
        rivals[name] = [one for one in accepted if found.origin(one.named.name) == origin]
    best = {k: max(v, key=lambda one: one.speed_up, default=None) for k, v in rivals.items()}
    against = {name: None if one is None else compared(own, one) for name, one in best.items()}
    fast = all(one is None or one["ratio"] >= 1 for one in against.values())
    return against | {"budget": share, "met": fast and share < BUDGET}


def method_row(advice: Advice) -> dict[str, Any]:
    """A method's row of fronts.json: what `advice_document` says of it, and its bar."""
    document = advice_document(advice)
    (row,) = document["caches"]
    (found,) = advice.caches.values()
    front = [name for _, name in document["front"]]
    accepted = sorted(found.accepted)
    judged = bar(found, len(advice.request.search_prompts))
    return row | {"front": front, "accepted": accepted, "bar": judged}


def most_runs(request: AdviceRequest) -> int:
    """The most runs that a method may need, those of plain decoding included."""
    prompts = len(request.search_prompts)
    searches = 3 * request.candidates * request.first_prompts * 2
    return 2 * searches + TESTED * prompts + (TESTED + 1) * len(request.held_back)


def measure(asked: Sequence[AdviceRequest], out: Path, session: Session) -> dict[str, Any] | None:
    """Work on the requests; returns the document of fronts.json, or None after a stop."""
    journal, control = Journal(out / "runs.jsonl"), Control()
    run, first = partial(session.run, control=control), asked[0]
    document: dict[str, Any] = {
        "command": COMMAND, "environment": dict(session.environment(first.plain)),
        "model": first.base.model, "family": DEFAULT_FAMILY, "shots": SHOTS, "keep": first.keep,
        "held_out": len(first.held_back), "searched": len(first.search_prompts), "methods": [],
    }  # fmt: skip
    for request in asked:
        info = session.model_info(request.base.model)
        advisor = Advisor(run, session.environment, info, request, journal, control)
        with stopped_by_interrupt(control):
            for one in advisor.events():
                print(f"\r{one.stage}: {one.done} of {one.total}".ljust(79), end="",
                      file=sys.stderr, flush=True)  # fmt: skip
        print(file=sys.stderr)
        if not advisor.advice.finished:
            return None
        document["methods"].append(method_row(advisor.advice))
        write_atomically(out / "fronts.json", (json.dumps(document) + "\n").encode())
    return document


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command; `arguments` default to those of the process."""
    args = _parser().parse_args(arguments)
    torch.set_num_threads(1)
    folders = embedded_models(ASSETS)
    try:
        if args.model not in folders and Path(args.model).is_dir():
            folders, args.model = folders | {"model": Path(args.model)}, "model"
        session = Session(folders)
        asked = list(requests(args, session.model_info(args.model)))
        _say_time(session, asked)
        if args.estimate:
            return
        document = measure(asked, args.out, session)
        if document is None:
            raise SystemExit("stopped; the same command continues")
        text = section(document)
        print(text)
        if args.publish:
            results = ASSETS / "results"
            write_atomically(results / "fronts.json", (json.dumps(document) + "\n").encode())
            write_atomically(results / "fronts.svg", svg(document).encode())
            update_section(RESULTS_README, text, "fronts")
    except (ValueError, OSError) as error:
        raise SystemExit(f"error: {error}") from None


def _say_time(session: Session, asked: Sequence[AdviceRequest]) -> None:
    """Print the most time that the runs need, from one run of plain decoding."""
    spec = with_fields(asked[0].plain, {"prompt": asked[0].prompts[0].prompt})
    outcome_of(session.run(spec), None)  # loads the model
    start = perf_counter()
    outcome_of(session.run(spec), None)
    seconds, runs = perf_counter() - start, sum(map(most_runs, asked))
    print(f"{len(asked)} methods, at most {runs} runs: at most {runs * seconds / 60:.0f} minutes "
          f"if each takes {seconds:.2f} s, as plain decoding does", flush=True)  # fmt: skip


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("fronts", __doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder for runs and fronts.json")
    parser.add_argument("--model", default="tiny-llada", help="embedded model, or its folder")
    parser.add_argument("--caches", help="methods, separated by commas; default: all")
    parser.add_argument("--held-out", type=int, default=500, help="problems of the final test")
    parser.add_argument("--candidates", type=int, default=12, help="settings to run of each cache")
    parser.add_argument("--keep", type=float, default=0.95, help="share of accuracy to be kept")
    parser.add_argument("--seed", type=int, default=7, help="seed of problems and searches")
    parser.add_argument("--estimate", action="store_true", help="only say how long it may take")
    parser.add_argument("--publish", action="store_true", help="write assets/results when done")
    return parser


if __name__ == "__main__":
    main()
