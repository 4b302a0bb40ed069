"""Record the runs that ship with the app, so that the page shows them without a model.

    python -m engine examples

Writes `assets/examples`: `a.npz` and `b.npz`, the default race as it was timed; `a-recorded.npz`
and `b-recorded.npz`, the same race at level `probe`; `methods/<name>.npz`, a short problem at
level `probe` with plain decoding, every cache policy and every unmasker; `lessons/<name>.npz`,
the runs of the lessons. On one machine all arrays except the times are reproducible. The spec of
each run has the end-of-text rule by which it ended (catalog.with_end_of_text_rules);
`methods/plain_RULE.npz` is plain decoding by the rule of a method that changes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from engine import catalog
from engine.batch.settings import with_fields
from engine.config.spec import RaceSpec, RunSpec
from engine.core.command_line import command_parser, failure, thread_count
from engine.core.control import interrupted_later
from engine.core.events import Event, Waiting
from engine.core.files import ASSETS, check_writable
from engine.models.loading.families import embedded_models
from engine.serve.session import Session
from engine.trace.trace import Trace

PLAIN = "plain"
FAMILY, LENGTH, BLOCK = "short_problems", 64, 32
PROBLEM, LESSON, BLOCK_LESSON = 1, 59, 13  # of the methods, the lessons, and those of BLOCK_MODEL
BLOCK_MODEL = "tiny-block"  # with block-causal attention; its runs are left out if it is not there
# Name of a lesson's run to its changed fields and knobs.
LESSONS: dict[str, dict[str, Any]] = {
    PLAIN: {},
    "plain_fill_safe": {"eos": "fill_safe"},
    "dual": {"cache": "dual"},
    "dllm_25_5": {"cache": "dllm_cache"},
    "dllm_25_50": {"cache": "dllm_cache", "dllm_cache.response_interval": 50},
    "dllm_25_2_0": {
        "cache": "dllm_cache",
        "dllm_cache.response_interval": 2,
        "dllm_cache.recompute_ratio": 0.0,
    },
    "dllm_100_20_0": {
        "cache": "dllm_cache",
        "dllm_cache.prompt_interval": 100,
        "dllm_cache.response_interval": 20,
        "dllm_cache.recompute_ratio": 0.0,
    },
    "threshold_95": {"unmasker": "threshold", "threshold.threshold": 0.95},
    "threshold_70": {"unmasker": "threshold", "threshold.threshold": 0.7},
    "threshold_50": {"unmasker": "threshold", "threshold.threshold": 0.5},
    "spa_cache": {"cache": "spa_cache"},
    "freecache": {"cache": "freecache", "freecache.block": 32},
    "freecache_fill_safe": {"cache": "freecache", "freecache.block": 32, "eos": "fill_safe"},
    "guided": {"unmasker": "guided"},
    "freecache_guided": {"cache": "freecache", "unmasker": "guided", "freecache.block": 32},
    "freecache_guided_digits": {
        "cache": "freecache",
        "unmasker": "guided",
        "freecache.block": 32,
        "guided.guider": "tiny-qwen2-digits",
    },
    "dare_kv": {"cache": "dare_kv"},
    "dare_o": {"cache": "dare_o"},
    "dare_o_from_layer_3": {"cache": "dare_o", "dare_o.skip_first_layers": 2},
}
# The same of runs of BLOCK_MODEL, by its own rule.
BLOCK_LESSONS: dict[str, dict[str, Any]] = {
    "block_plain": {},
    "block_frozen": {"cache": "frozen"},
    "block_sub_block": {"cache": "sub_block"},
}


class UnfinishedRunError(Exception):
    """A run failed or was stopped; the message is the run's, which has remedies of its own."""


def collect_traces(events: Iterable[tuple[str, Event]]) -> dict[str, Trace]:
    """The traces of (lane, event) pairs, by lane; UnfinishedRunError if a run did not finish."""
    traces: dict[str, Trace] = {}
    for lane, event in events:
        if not isinstance(event, Waiting):
            traces.setdefault(lane, Trace()).append(event)
    for lane, trace in traces.items():
        if trace.meta["reason"] != "done":
            raise UnfinishedRunError(f"{lane}: {trace.meta['message'] or trace.meta['reason']}")
    return traces


def record_race(session: Session, level: str = "off") -> dict[str, Trace]:
    """The traces of both lanes of the session's default race, with a recorder at a level."""
    race = session.default_race()
    lanes = (replace(spec, record=level) for spec in (race.a, race.b))
    return collect_traces(session.race(RaceSpec(*lanes)))


def short_run(session: Session, problem: int) -> RunSpec:
    """Plain decoding of a problem of the corpus without examples, at level `probe`."""
    return RunSpec(
        model=session.default_race().a.model,
        prompt=session.problem(problem, family=FAMILY)["prompt"],
        gen_length=LENGTH,
        block_length=BLOCK,
        steps=LENGTH,
        record="probe",
    )


def lesson_specs(session: Session) -> dict[str, RunSpec]:
    """The specs of the lessons' runs, by file name."""
    base = short_run(session, LESSON)
    specs = {name: with_fields(base, changes) for name, changes in LESSONS.items()}
    if (block := block_run(session, BLOCK_LESSON)) is not None:
        specs |= {name: with_fields(block, changes) for name, changes in BLOCK_LESSONS.items()}
    return {name: catalog.with_end_of_text_rules([spec])[0] for name, spec in specs.items()}


def block_run(session: Session, problem: int) -> RunSpec | None:
    """Plain decoding by BLOCK_MODEL and the rule of Fast-dLLM v2; None without the model."""
    if BLOCK_MODEL not in [row["name"] for row in session.catalog()["models"]]:
        return None
    size = session.model_info(BLOCK_MODEL).block_size
    return replace(
        short_run(session, problem), model=BLOCK_MODEL, unmasker="fast_dllm_v2",
        block_length=size, gen_length=-(-LENGTH // size) * size,
    )  # fmt: skip


def method_specs(session: Session) -> dict[str, RunSpec]:
    """A short problem with each method at its defaults and with plain decoding, by file name.

    Plain decoding is there once for each end-of-text rule of the methods (plain_name). Caches for
    block-causal attention have a run of BLOCK_MODEL.
    """
    base, block = short_run(session, PROBLEM), block_run(session, PROBLEM)
    caches = {}
    for name, kind in catalog.policies().items():
        own = base if "full" in kind.attention else block
        if own is not None:
            caches[name] = replace(own, cache=name)
    others = {name: replace(base, unmasker=name) for name in catalog.decoding_rules()}
    specs = {PLAIN: base}
    for name, spec in (caches | others).items():
        if spec.model != base.model:
            (specs[name],) = catalog.with_end_of_text_rules([spec])
        elif spec != base:
            plain, specs[name] = catalog.with_end_of_text_rules([base, spec])
            specs[plain_name(plain, base)] = plain
    return specs


def plain_name(plain: RunSpec, base: RunSpec) -> str:
    """The file name of plain decoding: `plain`, or `plain_RULE` if `base` has another rule."""
    return PLAIN if plain.eos == base.eos else f"{PLAIN}_{plain.eos}"


def record_runs(session: Session, specs: Mapping[str, RunSpec]) -> dict[str, Trace]:
    """The trace of each spec, by name."""
    return {
        name: collect_traces((name, event) for event in session.run(spec))[name]
        for name, spec in specs.items()
    }


def save_traces(traces: Mapping[str, Trace], folder: Path) -> None:
    """Save each trace as `NAME.npz` in a folder, which is created if necessary."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, trace in traces.items():
        trace.save(folder / f"{name}.npz")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command; `arguments` default to those of the process."""
    parser = command_parser("examples", __doc__, alone=True)
    parser.add_argument("--threads", type=thread_count, default=1, help="torch threads")
    args = parser.parse_args(arguments)
    torch.set_num_threads(args.threads)
    try:
        record_examples(Session(embedded_models(ASSETS)), ASSETS / "examples")
    except (ValueError, OSError, RuntimeError, UnfinishedRunError) as error:
        raise failure(error, args) from None


def record_examples(session: Session, folder: Path) -> None:
    """Record all runs, then save them in a folder, so that a failed one leaves all as they were."""
    check_writable(folder / "any file")
    race, recorded = record_race(session), record_race(session, "probe")
    methods = record_runs(session, method_specs(session))
    lessons = record_runs(session, lesson_specs(session))
    with interrupted_later():
        save_traces(race, folder)
        save_traces({f"{lane}-recorded": trace for lane, trace in recorded.items()}, folder)
        save_traces(methods, folder / "methods")
        save_traces(lessons, folder / "lessons")
