"""Search the settings of every cache method and test them on held-out problems.

    python -m engine fronts --out FOLDER --estimate
    python -m engine fronts --out FOLDER
    python -m engine fronts --out FOLDER --publish
    python -m engine fronts --out FOLDER --further 200 --publish

For each method: a search, a search at random with the same budget, and a test of the best settings
beside the method's defaults and its fastest published preset on problems that the search did not
use.
Every run is timed in turn with plain decoding. --out keeps every run in runs.jsonl as it ends, and
fronts.json after each method; the same command continues from there, also with more --held-out.
--further judges the settings of FOLDER/fronts.json that may keep enough on more held-out problems,
which are decoded in batches and not timed, and writes fronts.json anew; the command without
--further writes it again without them. `torchrun --nproc-per-node N -m engine fronts ...` shares
these problems among N processes. All runs are on the CPU.
--publish, of an embedded model, all methods and at least 500 held-out problems, those of --further
included, also writes fronts-MODEL.json, fronts-MODEL.svg and the section "fronts of MODEL" of
README.md in assets/results. The sections of all models have the default --keep and --seed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

from engine.advise.advisor import Advisor, ExactRun
from engine.advise.request import (
    LEAST_CANDIDATES,
    LEAST_PROMPTS,
    MOST_CANDIDATES,
    MOST_SEARCH_PROMPTS,
    AdviceRequest,
    runs_of_rounds,
    searched_prompts,
)
from engine.advise.search_space import ALL, grid, named_caches, searchable
from engine.batch.journal import Journal
from engine.batch.outcome import outcome_of
from engine.batch.prompts import MAX_PROMPTS, drawn_prompts
from engine.batch.settings import with_fields
from engine.bench.suite import own_blocks
from engine.config.spec import RunSpec
from engine.core.command_line import (
    command_parser,
    failure,
    make_out,
    not_negative,
    process_count,
    refuse_flags,
    refuse_shorter,
    without_traceback,
)
from engine.core.control import STOPPED, Control, interrupted_later, stopped_by_interrupt
from engine.core.files import ASSETS, read_json, write_atomically
from engine.core.tables import RESULTS_README, check_section, update_section
from engine.distributed.processes import Processes
from engine.evaluate.fronts.criterion import BUDGET, method_row
from engine.evaluate.fronts.further import settings_to_judge, with_further
from engine.evaluate.fronts.text import section, svg
from engine.evaluate.sharing.shared_exam import SharedExam
from engine.models.base import ModelInfo
from engine.models.loading.families import embedded_models
from engine.serve import environment
from engine.serve.model_pool import ModelPool
from engine.serve.session import Session
from engine.tiny.corpus import exam_questions
from engine.tiny.suite import families_by_model, known_families

COMMAND = "python -m engine fronts"
SHOTS = 0  # worked examples before each problem, as in the tables of accuracy
# Answers to chained word problems have at most 83 tokens.
LENGTHS = {"gen_length": 96, "block_length": 32, "steps": 96}
# The others serve the search.
LEAST_HELD_OUT, MOST_HELD_OUT = LEAST_PROMPTS - 2, MAX_PROMPTS - MOST_SEARCH_PROMPTS
HELD_OUT = 500  # unless --held-out says otherwise; fewer are not published
CANDIDATES = 12  # the same of --candidates
KEEP, SEED = 0.95, 7  # unless flags say otherwise; no others are published
TESTED = 6  # most settings of a final test
# Further problems decoded together. Batches of 8 and of 20 took longer on two cores with 8 MB of
# cache.
BATCH = 4
FRONTS = "fronts.json"
# Fields of fronts.json that --further reads.
OF_A_DOCUMENT = {
    "candidates", "environment", "family", "further", "held_out", "keep", "methods", "model",
    "searched", "seed", "shots",
}  # fmt: skip
OF_A_SHORTER_SEARCH = ("held_out", "candidates")  # flags
OF_ANOTHER_SEARCH = {"keep": KEEP, "seed": SEED}
OF_A_SEARCH = (*OF_A_SHORTER_SEARCH, *OF_ANOTHER_SEARCH, "caches")


def requests(args: argparse.Namespace, info: ModelInfo, family: str) -> Iterator[AdviceRequest]:
    """The request of each method for a model, on problems of a family.

    Raises ValueError naming the flag or the cache.
    """
    if not LEAST_HELD_OUT <= args.held_out <= MOST_HELD_OUT:
        raise ValueError(
            f"--held-out: {args.held_out} is outside {LEAST_HELD_OUT} to {MOST_HELD_OUT}"
        )
    if not LEAST_CANDIDATES <= args.candidates <= MOST_CANDIDATES:
        raise ValueError(
            f"--candidates: {args.candidates} is outside {LEAST_CANDIDATES} to {MOST_CANDIDATES}"
        )
    caches = named_caches(args.caches or ALL, info)
    if len(set(caches)) < len(caches):
        raise ValueError(f"--caches: {args.caches} names a method twice; name each once")
    count = args.held_out + min(max(args.held_out // 2, 2), MOST_SEARCH_PROMPTS)
    prompts = tuple(drawn_prompts(family, count, args.seed, SHOTS))
    base = _base(args.model, info)
    searched = searched_prompts(count)
    for cache in caches:
        candidates = affordable(args.candidates, len(grid(base, cache)), searched)
        yield AdviceRequest(
            base, (cache,), prompts, args.keep, "accuracy", candidates, True, args.seed
        )


def _base(model: str, info: ModelInfo | None) -> RunSpec:
    """The settings that those of all methods have in common, those of plain decoding."""
    return own_blocks(with_fields(RunSpec(model=model), LENGTHS), info)


def affordable(most: int, settings: int, prompts: int) -> int:
    """The most candidates, up to `most`, whose rounds need less than BUDGET of the grid's runs.

    The grid runs each of its `settings` on all `prompts` of the search. At least LEAST_CANDIDATES.
    """
    counts = range(most, LEAST_CANDIDATES, -1)
    fit = (n for n in counts if runs_of_rounds(n, prompts) < BUDGET * settings * prompts)
    return next(fit, LEAST_CANDIDATES)


def most_runs(request: AdviceRequest) -> int:
    """The most runs that a method may need, those of plain decoding included."""
    prompts = len(request.search_prompts)
    searches = 3 * request.candidates * request.first_prompts * 2
    return 2 * searches + TESTED * prompts + (TESTED + 1) * len(request.held_back)


def measure(
    asked: Sequence[AdviceRequest], candidates: int, out: Path, session: Session, family: str
) -> dict[str, Any] | None:
    """Work on the requests; returns the document of fronts.json, or None after a stop.

    `candidates` is the number of --candidates, of which a request may have fewer (`affordable`).
    """
    journal, control = Journal(out / "runs.jsonl"), Control()
    run, first = partial(session.run, control=control), asked[0]
    exact: list[ExactRun] = []  # the same for all methods
    document: dict[str, Any] = {
        "command": COMMAND, "environment": dict(session.environment(first.plain)),
        "model": first.base.model, "family": family, "shots": SHOTS, "keep": first.keep,
        "seed": first.seed, "candidates": candidates, "searched": len(first.search_prompts),
        "held_out": len(first.held_back), "further": 0, "methods": [],
    }  # fmt: skip
    for request in asked:
        info = session.model_info(request.base.model)
        advisor = Advisor(run, session.environment, info, request, journal, control, exact)
        with stopped_by_interrupt(control):
            for one in advisor.events():
                print(f"\r{one.stage}: {one.done} of {one.total}".ljust(79), end="",
                      file=sys.stderr, flush=True)  # fmt: skip
        print(file=sys.stderr)
        if not advisor.advice.finished:
            return None
        document["methods"].append(method_row(advisor.advice))
        _write(document, out)
    return document


def judge_further(
    document: dict[str, Any], problems: int, folders: Mapping[str, Path], out: Path
) -> dict[str, Any] | None:
    """Judge the settings of a document of fronts.json on further problems, and write it anew.

    `out` keeps the samples. Returns the new document, on the main process alone. Raises ValueError
    naming `model` if the document is of another checkpoint than that of its model in `folders`, or
    the flag.
    """
    if problems < 1:
        raise ValueError(f"--further: {problems} must be at least 1")
    pool, solved = ModelPool(folders), {}
    plain = _base(document["model"], pool.info(document["model"]))
    before = document["searched"] + document["held_out"] + document["further"]
    asked = before + problems, document["seed"], document["shots"], document["family"]
    questions = exam_questions(*asked)[before:]
    checkpoint = document["environment"]["checkpoint"]
    with Processes() as processes:
        shared = SharedExam(processes, out)
        for name, spec in settings_to_judge(document, plain).items():
            model = pool.load_to_run(spec)
            if environment.describe(spec, model.digest)["checkpoint"] != checkpoint:
                raise ValueError(f"model: {FRONTS} is of another checkpoint of {spec.model}")
            print(name, file=sys.stderr)
            samples = shared.evaluate(model, spec, questions, BATCH, False)
            solved[name] = [one.result.correct for one in samples]
        if not processes.is_main:
            return None
    document = with_further(document, solved)
    _write(document, out)
    return document


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command; `arguments` default to those of the process."""
    parser = _parser()
    args = parser.parse_args(arguments)
    _check_flags(parser, args)
    torch.set_num_threads(1)
    folders = embedded_models(ASSETS)
    try:
        first = None if args.further is None else _read(args.out)
        if args.publish:
            _check_published(args, first, folders)  # before hours of work
        if args.model not in folders and Path(args.model).is_dir():
            folders, args.model = folders | {"model": Path(args.model)}, "model"
        if first is not None:
            if args.model not in (parser.get_default("model"), first["model"]):
                raise ValueError(f"--model: {FRONTS} is of {first['model']}; leave --model out")
            document = judge_further(first, args.further, folders, args.out)
            if document is None:
                return
        else:
            if process_count() > 1:
                raise ValueError(
                    "--further: only its problems are shared; start a search without torchrun"
                )
            session = Session(folders)
            (family, *_) = known_families(families_by_model(folders), args.model)
            asked = list(requests(args, session.model_info(args.model), family))
            _say_time(session, asked)
            if args.estimate:
                return
            make_out(args.out)
            document = measure(asked, args.candidates, args.out, session, family)
            if document is None:
                print("stopped; the same command continues", file=sys.stderr)
                raise SystemExit(STOPPED)
        text = section(document)
        print(text)
        if args.publish:
            _publish(document, text)
    except (ValueError, OSError, RuntimeError) as error:
        raise failure(error, args) from None


def _check_flags(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    """End the command if its flags do not go together."""
    if args.further is not None:
        reason = f"leave it out with --further, which takes the settings of {FRONTS}"
        refuse_flags(parser, args, OF_A_SEARCH, reason)
    if args.publish and args.estimate:
        parser.error("--publish: leave it out with --estimate, which measures nothing to publish")
    if args.publish and args.caches not in (None, ALL):
        parser.error("--publish: leave it out with --caches, since the section is of all methods")
    if args.publish:
        refuse_shorter(parser, args, OF_A_SHORTER_SEARCH, "leave out --publish")
        reason = "leave it out with --publish, whose sections are all of the same share and seed"
        refuse_flags(parser, args, OF_ANOTHER_SEARCH, reason)


def _read(out: Path) -> dict[str, Any]:
    """The document of a folder's fronts.json. Raises ValueError if it is not one."""
    document = read_json(out / FRONTS, "--further")
    try:
        tested = [one for row in document["methods"] for one in row["held_back"]]
        known = document.keys() >= OF_A_DOCUMENT and all("right" in one for one in tested)
    except (AttributeError, KeyError, TypeError):
        known = False
    if not known:
        raise ValueError(f"{out / FRONTS} was not written by this version; measure anew")
    return document


def _check_published(
    args: argparse.Namespace, first: Mapping[str, Any] | None, folders: Mapping[str, Path]
) -> None:
    """Raise ValueError if the results of the flags cannot be published.

    `first` is the document whose settings are judged further, None if all methods are measured.
    """
    model = args.model if first is None else first["model"]
    if model not in folders:
        raise ValueError(f"--publish: {model} is not an embedded model")
    check_section(RESULTS_README, _section_name(model))
    if first is None:
        return
    known = {row["cache"] for row in first["methods"]}
    missing = [one for one in searchable(ModelPool(folders).info(model)) if one not in known]
    if missing:
        raise ValueError(
            f"--publish: {FRONTS} lacks {', '.join(missing)}; measure all methods first"
        )
    if first["candidates"] < CANDIDATES:
        raise ValueError(
            f"--publish: {FRONTS} is of a search with --candidates {first['candidates']}, fewer "
            f"than {CANDIDATES}; search again with more, or leave out --publish"
        )
    for name, usual in OF_ANOTHER_SEARCH.items():
        if first[name] != usual:
            raise ValueError(
                f"--publish: {FRONTS} is of a search with --{name} {first[name]}, not {usual}, "
                f"which all sections have; search again without --{name}, or leave out --publish"
            )
    problems = first["held_out"] + first["further"] + args.further
    if problems < HELD_OUT:
        raise ValueError(
            f"--publish: {problems} held-out problems are fewer than {HELD_OUT}; give a larger "
            "--further, or leave out --publish"
        )


def _write(document: Mapping[str, Any], out: Path) -> None:
    write_atomically(out / FRONTS, _as_json(document))


def _as_json(document: Mapping[str, Any]) -> bytes:
    return (json.dumps(document) + "\n").encode()


@interrupted_later()
def _publish(document: Mapping[str, Any], text: str) -> None:
    """Write the results of a model, whose section of README.md is `text`."""
    name, results = document["model"], ASSETS / "results"
    write_atomically(results / f"fronts-{name}.json", _as_json(document))
    write_atomically(results / f"fronts-{name}.svg", svg(document).encode())
    update_section(RESULTS_README, text, _section_name(name))


def _section_name(model: str) -> str:
    return f"fronts of {model}"


def _say_time(session: Session, asked: Sequence[AdviceRequest]) -> None:
    """Print the most time that the runs need, from one run of plain decoding."""
    spec = with_fields(asked[0].plain, {"prompt": asked[0].prompts[0].prompt})
    outcome_of(session.run(spec))  # loads the model
    start = perf_counter()
    outcome_of(session.run(spec))
    seconds, runs = perf_counter() - start, sum(map(most_runs, asked))
    print(f"{len(asked)} methods, at most {runs} runs: at most {runs * seconds / 60:.0f} minutes "
          f"if each takes {seconds:.2f} s, as plain decoding does", flush=True)  # fmt: skip


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("fronts", __doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder for runs and fronts.json")
    parser.add_argument("--model", default="tiny-llada", help="embedded model, or its folder")
    parser.add_argument("--caches", help="methods, separated by commas; default: all")
    parser.add_argument("--held-out", type=int, default=HELD_OUT, help="problems of the final test")
    parser.add_argument(
        "--candidates", type=int, default=CANDIDATES, help="settings to run of each cache"
    )
    parser.add_argument("--keep", type=float, default=KEEP, help="share of accuracy to be kept")
    parser.add_argument("--seed", type=not_negative, default=SEED, help="of problems and searches")
    one = parser.add_mutually_exclusive_group()
    one.add_argument("--estimate", action="store_true", help="only say how long it may take")
    one.add_argument(
        "--further", type=int, metavar="N", help="judge N more problems; nothing is timed"
    )
    parser.add_argument("--publish", action="store_true", help="write assets/results when done")
    return parser


if __name__ == "__main__":
    with without_traceback():
        main()
