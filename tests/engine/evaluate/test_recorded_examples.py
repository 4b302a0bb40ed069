"""The shipped recordings: of this checkpoint, of every method, and reproducible."""

import json
import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from engine import catalog
from engine.config.spec import RaceSpec, RunSpec
from engine.core.events import RunFinished
from engine.evaluate import record_examples
from engine.evaluate.record_examples import (
    LESSONS,
    PLAIN,
    UnfinishedRunError,
    collect_traces,
    lesson_specs,
    method_specs,
    record_race,
    record_runs,
)
from engine.models.loading.checkpoint import Checkpoint
from engine.trace.trace import Trace

ASSETS = Path(__file__).parents[3] / "assets"
FOLDER = ASSETS / "examples"
TIMES = {"forward_ms", "decide_ms", "guided_ms"}
METHODS = catalog.policies() | catalog.unmaskers()
DOCUMENTED = [name for name, cls in METHODS.items() if catalog.method_doc(cls).description]
BASE = ("none", "quota")


def different_arrays(one, other):
    """The names of the arrays that differ."""
    a, b = one.arrays(), other.arrays()
    return {n for n in a if a[n].shape != b[n].shape or a[n].tobytes() != b[n].tobytes()}


@pytest.mark.parametrize("name", [PLAIN, "dual", "spa_cache", "threshold", "guided"])
def test_a_repeated_recording_differs_only_in_its_times(session, name):
    spec = replace(
        method_specs(session)[name], gen_length=16, block_length=8, steps=16, probe_steps=2
    )
    one, again = (record_runs(session, {name: spec})[name] for _ in range(2))
    assert different_arrays(one, again) <= TIMES
    other = record_runs(session, {name: replace(spec, temperature=1.0)})[name]
    assert different_arrays(one, other) - TIMES


OWN_REMEDY = "the device ran out of memory; lower gen_length"


def test_a_failed_run_raises():
    failed = RunFinished("failed", np.zeros((1, 0), np.int32), message=OWN_REMEDY)
    with pytest.raises(UnfinishedRunError, match=f"^a: {OWN_REMEDY}$"):
        collect_traces([("a", failed)])


@pytest.mark.parametrize(
    "error", [UnfinishedRunError(f"a: {OWN_REMEDY}"), RuntimeError("no token"), OSError("full")]
)
def test_a_recording_that_fails_ends_with_its_error(error, monkeypatch):
    def failing(session, level="off"):
        raise error

    monkeypatch.setattr(record_examples, "record_race", failing)
    with pytest.raises(SystemExit, match=f"^error: {error}$"):
        record_examples.main([])


def test_a_recording_that_fails_leaves_all_earlier_ones(session, tmp_path, monkeypatch):
    def failing(session, specs):
        raise UnfinishedRunError("a: stopped")

    monkeypatch.setattr(record_examples, "record_race", lambda *given: {"a": None})
    monkeypatch.setattr(record_examples, "record_runs", failing)
    monkeypatch.setattr(record_examples, "save_traces", lambda *given: pytest.fail("one is new"))
    with pytest.raises(UnfinishedRunError, match="stopped"):
        record_examples.record_examples(session, tmp_path)


def test_an_interrupt_leaves_no_earlier_recording_beside_new_ones(session, tmp_path, monkeypatch):
    saved = []

    def save(traces, folder):
        signal.raise_signal(signal.SIGINT)
        saved.append(folder.name)

    monkeypatch.setattr(record_examples, "record_race", lambda *given: {})
    monkeypatch.setattr(record_examples, "record_runs", lambda *given: {})
    monkeypatch.setattr(record_examples, "save_traces", save)
    with pytest.raises(KeyboardInterrupt):
        record_examples.record_examples(session, tmp_path)
    assert saved == [tmp_path.name, tmp_path.name, "methods", "lessons"]


@pytest.mark.parametrize("method", DOCUMENTED)
def test_every_documented_method_has_its_recorded_run(shipped, method):
    name = PLAIN if method in BASE else method
    trace = Trace.load(FOLDER / "methods" / f"{name}.npz")
    assert RunSpec.from_dict(trace.meta["spec"]) == method_specs(shipped)[name]
    assert method in (trace.meta["spec"]["cache"], trace.meta["spec"]["unmasker"])
    digest = Checkpoint(ASSETS / "models" / trace.meta["spec"]["model"]).digest()
    assert trace.meta["environment"]["checkpoint"] == digest
    assert trace.meta["reason"] == "done"
    arrays = trace.arrays()
    assert len(arrays["drift"]) == trace.steps
    assert 0 < len(arrays["probe_step"]) <= trace.meta["spec"]["probe_steps"]


@pytest.mark.parametrize("name", LESSONS)
def test_every_lesson_has_its_recorded_runs(shipped, name):
    trace = Trace.load(FOLDER / "lessons" / f"{name}.npz")
    assert RunSpec.from_dict(trace.meta["spec"]) == lesson_specs(shipped)[name]
    assert trace.meta["reason"] == "done"


def test_every_recorded_run_is_of_an_existing_method_or_lesson(shipped):
    names = {
        folder: {path.stem for path in (FOLDER / folder).glob("*.npz")}
        for folder in ("methods", "lessons")
    }
    assert names["methods"] <= set(method_specs(shipped))
    assert names["lessons"] == set(lesson_specs(shipped))


def test_each_method_has_a_plain_run_by_its_end_of_text_rule(shipped):
    specs = method_specs(shipped)
    plain = {spec.eos: name for name, spec in specs.items() if name.startswith(PLAIN)}
    assert plain == {"official": "plain", "fill_safe": "plain_fill_safe"}
    assert {spec.eos for spec in specs.values()} == set(plain)
    stopping = ("guided", "autoregressive")
    assert {specs[name].eos for name in stopping} == {"fill_safe"}
    unlike = {spec.eos for name, spec in specs.items() if name not in (*stopping, *plain.values())}
    assert unlike == {"official"}
    for rule, name in plain.items():
        assert specs[name] == replace(specs[PLAIN], eos=rule)


def test_a_recorded_run_ends_by_the_rule_of_its_spec(session):
    small = {"gen_length": 16, "block_length": 8, "steps": 16, "record": "off"}
    specs = {
        name: replace(spec, **small)
        for name, spec in lesson_specs(session).items()
        if name in ("plain", "guided")
    }
    found = {name: trace.meta["spec"] for name, trace in record_runs(session, specs).items()}
    assert found == {name: json.loads(json.dumps(spec.to_dict())) for name, spec in specs.items()}
    assert [spec["eos"] for spec in found.values()] == ["official", "fill_safe"]


def test_both_lanes_of_the_recorded_race_end_by_one_rule(session, monkeypatch):
    base = replace(method_specs(session)[PLAIN], gen_length=16, block_length=8, steps=16)
    race = RaceSpec(base, replace(base, unmasker="guided"))
    monkeypatch.setattr(session, "default_race", lambda: race)
    traces = record_race(session)
    assert [trace.meta["spec"]["eos"] for trace in traces.values()] == ["fill_safe", "fill_safe"]


@pytest.mark.parametrize("lane", ["a", "b"])
def test_the_recorded_default_race_equals_the_timed_one(lane):
    timed, recorded = (Trace.load(FOLDER / f"{lane}{end}.npz") for end in ("", "-recorded"))
    assert recorded.meta["spec"] == timed.meta["spec"] | {"record": "probe"}
    assert np.array_equal(recorded.step_map(), timed.step_map())
    assert np.array_equal(recorded.canvas_at(timed.steps), timed.canvas_at(timed.steps))


def test_the_recorded_runs_are_small():
    sizes = [path.stat().st_size for path in FOLDER.rglob("*.npz")]
    assert max(sizes) < 2_000_000
    assert sum(sizes) < 9_000_000
