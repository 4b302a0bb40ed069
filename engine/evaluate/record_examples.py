"""example: record the finished runs that the page can show without computing anything.

    python -m engine examples

Writes `assets/examples`: `a.npz` and `b.npz`, the default race as it was timed; `a-recorded.npz`
and `b-recorded.npz`, the same race once more at level `probe`; `methods/<name>.npz`, a short
problem under plain decoding, every cache policy and every unmasker, at level `probe`;
`lessons/<name>.npz`, the runs that the lessons ask about. Run twice, it writes the same arrays but
for the clocks.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from engine import catalog
from engine.config.spec import RaceSpec, RunSpec
from engine.core.events import Event, Waiting
from engine.core.files import ASSETS
from engine.models.loading.families import embedded_models
from engine.serve.session import Session
from engine.trace.trace import Trace

PLAIN = "plain"
PROBLEM, LESSON, LENGTH, BLOCK = 3, 13, 64, 32
LESSONS: dict[str, dict[str, Any]] = {
    PLAIN: {},
    "dual": {"cache": "dual"},
    "dllm_25_5": {"cache": "dllm_cache"},
    "dllm_25_50": {"cache": "dllm_cache", "knobs": {"dllm_cache.response_interval": 50}},
    "dllm_100_20_0": {
        "cache": "dllm_cache",
        "knobs": {
            "dllm_cache.prompt_interval": 100,
            "dllm_cache.response_interval": 20,
            "dllm_cache.recompute_ratio": 0.0,
        },
    },
    "threshold_95": {"unmasker": "threshold", "knobs": {"threshold.threshold": 0.95}},
    "threshold_70": {"unmasker": "threshold", "knobs": {"threshold.threshold": 0.7}},
    "threshold_50": {"unmasker": "threshold", "knobs": {"threshold.threshold": 0.5}},
    "spa_cache": {"cache": "spa_cache"},
    "freecache": {"cache": "freecache", "knobs": {"freecache.block": 32}},
    "guided": {"unmasker": "guided"},
    "freecache_guided": {
        "cache": "freecache",
        "unmasker": "guided",
        "knobs": {"freecache.block": 32},
    },
    "freecache_guided_digits": {
        "cache": "freecache",
        "unmasker": "guided",
        "knobs": {"freecache.block": 32, "guided.guider": "tiny-qwen2-digits"},
    },
}


def gather(events: Iterable[tuple[str, Event]]) -> dict[str, Trace]:
    """The traces of a stream of events, by lane; RuntimeError where a run did not end well."""
    traces: dict[str, Trace] = {}
    for lane, event in events:
        if not isinstance(event, Waiting):
            traces.setdefault(lane, Trace()).append(event)
    for lane, trace in traces.items():
        if trace.meta["reason"] != "done":
            raise RuntimeError(f"{lane}: {trace.meta['message'] or trace.meta['reason']}")
    return traces


def record(session: Session, level: str = "off") -> dict[str, Trace]:
    """The traces of both lanes of the session's default race, recorded at a level."""
    race = session.default_race()
    lanes = (replace(spec, record=level) for spec in (race.a, race.b))
    return gather(session.race(RaceSpec(*lanes)))


def short_run(session: Session, problem: int) -> RunSpec:
    """Plain decoding of a problem alone, at level `probe`."""
    return RunSpec(
        model=session.default_race().a.model,
        prompt=session.problem(problem)["prompt"],
        gen_length=LENGTH,
        block_length=BLOCK,
        steps=LENGTH,
        record="probe",
    )


def lesson_specs(session: Session) -> dict[str, RunSpec]:
    """The runs of the lessons: name of its file to spec."""
    base = short_run(session, LESSON)
    return {name: replace(base, **changes) for name, changes in LESSONS.items()}


def method_specs(session: Session) -> dict[str, RunSpec]:
    """A short problem, alone, under each method at its defaults: name of its file to spec."""
    base = short_run(session, PROBLEM)
    specs = {PLAIN: base}
    specs |= {name: replace(base, cache=name) for name in catalog.policies() if name != base.cache}
    others = [name for name in catalog.unmaskers() if name != base.unmasker]
    return specs | {name: replace(base, unmasker=name) for name in others}


def record_runs(session: Session, specs: Mapping[str, RunSpec]) -> dict[str, Trace]:
    """The recorded run of each spec, by name."""
    return {
        name: gather((name, event) for event in session.run(spec))[name]
        for name, spec in specs.items()
    }


def write(traces: Mapping[str, Trace], folder: Path) -> None:
    """One file a trace, named for it."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, trace in traces.items():
        trace.save(folder / f"{name}.npz")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; `arguments` default to those of the process."""
    parser = argparse.ArgumentParser(
        prog="python -m engine examples",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--threads", type=int, default=1)
    torch.set_num_threads(parser.parse_args(arguments).threads)
    session, folder = Session(embedded_models(ASSETS)), ASSETS / "examples"
    write(record(session), folder)
    recorded = record(session, "probe")
    write({f"{lane}-recorded": trace for lane, trace in recorded.items()}, folder)
    write(record_runs(session, method_specs(session)), folder / "methods")
    write(record_runs(session, lesson_specs(session)), folder / "lessons")
