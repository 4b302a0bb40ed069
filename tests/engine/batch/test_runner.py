"""A batch of runs: order, resumption, Stop, failures, estimates and limits."""

import numpy as np
import pytest

from engine.batch import runner
from engine.batch.journal import Journal
from engine.batch.prompts import Prompt
from engine.batch.recordings import Recordings
from engine.batch.results import BatchResults
from engine.batch.runner import Finished, batch_events, check_size, run_batch
from engine.batch.settings import NamedSpec
from engine.config.spec import RunSpec
from engine.core.control import Control
from engine.core.events import RunFinished, RunStarted, Waiting

SETTINGS = (NamedSpec("plain", RunSpec()), NamedSpec("dual", RunSpec(cache="dual")))
PROMPTS = (Prompt("a", "4"), Prompt("b"), Prompt("c", "6"))
METRICS = {
    "nfe": 8, "text_nfe": 4, "total_ms": 80.0, "text_ms": 40.0, "gflops": 1.0,
    "recomputed": 0.5, "cache_bytes": None,
}  # fmt: skip
STOP = 9


class Engine:
    """Answers each prompt with "<prompt> is 4"; counts its runs, and fails or stops on wish."""

    def __init__(self, failing=(), stop_at=None):
        self.runs, self.failing, self.stop_at = [], failing, stop_at
        self.control = Control()

    def run(self, spec):
        self.runs.append((spec.prompt, spec.cache))
        if self.runs[-1] in self.failing:
            raise ValueError("prompt: too long")
        canvas = np.array([[1, 1, 5, 6, STOP, 7]], np.int32)
        mask = np.array([[True, True, False, False, False, False]])
        yield RunStarted(
            spec=spec.to_dict(), model={"stop_ids": [STOP], "vocabulary": "v"}, environment={},
            canvas=canvas, prompt_mask=mask, fixed_mask=~mask, pad_mask=mask, pieces={}, facts={},
        )  # fmt: skip
        stopped = len(self.runs) == self.stop_at
        if stopped:
            self.control.stop()
        reason = "stopped" if stopped else "done"
        yield RunFinished(reason, canvas, (f"{spec.prompt} is 4",), METRICS, answer=(5, 6))

    def batch(self, journal, settings=SETTINGS, prompts=PROMPTS):
        where = {"checkpoint": "abc"}
        return list(
            run_batch(self.run, settings, prompts, journal, lambda spec: where, self.control)
        )


def test_the_settings_take_turns_on_each_prompt():
    engine = Engine()
    found = engine.batch(Journal())
    assert engine.runs == [(p, c) for p in "abc" for c in ("none", "dual")]
    assert [(one.prompt, one.setting) for one in found] == [
        (p, s) for p in range(3) for s in (0, 1)
    ]
    assert [one.done for one in found] == [1, 2, 3, 4, 5, 6]
    first = found[0].outcome
    assert (first.ids, first.number, first.right, first.tokens) == ((5, 6), 4, True, 2)
    assert found[2].outcome.right is None
    assert found[4].outcome.right is False
    assert found[-1].seconds_left == 0


def test_a_stopped_batch_goes_on_where_it_was(tmp_path):
    path = tmp_path / "runs.jsonl"
    stopped = Engine(stop_at=4)
    assert len(stopped.batch(Journal(path))) == 3
    assert len(stopped.runs) == 4
    again = Engine()
    found = again.batch(Journal(path))
    assert again.runs == [*stopped.runs[3:], ("c", "none"), ("c", "dual")]
    assert [one.resumed for one in found] == [True] * 3 + [False] * 3
    assert [one.outcome for one in found] == [one.outcome for one in Engine().batch(Journal())]


def test_a_control_that_was_stopped_before_shows_what_is_kept(tmp_path):
    path = tmp_path / "runs.jsonl"
    Engine().batch(Journal(path), prompts=PROMPTS[:1])
    engine = Engine()
    engine.control.stop()
    assert [one.resumed for one in engine.batch(Journal(path))] == [True, True]
    assert engine.runs == []


def test_a_run_that_fails_ends_nothing_and_is_tried_again():
    journal, engine = Journal(), Engine(failing=[("b", "dual")])
    found = engine.batch(journal)
    assert [one.outcome.reason for one in found] == ["done"] * 3 + ["failed"] + ["done"] * 2
    assert found[3].outcome.message == "prompt: too long"
    again = Engine()
    assert [one.resumed for one in again.batch(journal)].count(False) == 1
    assert again.runs == [("b", "dual")]


def test_another_checkpoint_is_run_anew():
    journal = Journal()
    Engine().batch(journal)
    engine = Engine()
    where = {"checkpoint": "def"}
    list(run_batch(engine.run, SETTINGS, PROMPTS, journal, lambda spec: where))
    assert len(engine.runs) == 6


def test_the_estimate_is_of_the_runs_that_are_left(monkeypatch):
    """Runs of the first setting take 1 s, those of the second 3 s."""
    times = iter([0, 1, 1, 4, 4, 5, 5, 8, 8, 9, 9, 12])
    monkeypatch.setattr(runner.time, "perf_counter", lambda: next(times))
    assert [one.seconds_left for one in Engine().batch(Journal())] == [5, 8, 7, 4, 3, 0]


def test_the_estimate_of_kept_runs_is_by_their_own_times():
    """Kept runs took 80 ms each, and two prompts are left under two settings."""
    journal = Journal()
    Engine().batch(journal, prompts=PROMPTS[:1])
    where = {"checkpoint": "abc"}
    events = batch_events(Engine().run, SETTINGS, PROMPTS, journal, lambda spec: where, first=1)
    left = [one.seconds_left for one in events if isinstance(one, Finished)]
    assert left == [None, pytest.approx(4 * 0.08)]


def test_the_estimate_counts_no_queue_and_no_loading(monkeypatch):
    """A run waits 100 s, warms up for 1 s and computes for 1 s."""
    now, engine = [0], Engine()
    monkeypatch.setattr(runner.time, "perf_counter", lambda: now[0])

    def run(spec):
        yield Waiting("lock")
        now[0] += 100
        yield Waiting("warmup")
        now[0] += 1
        yield from engine.run(spec)
        now[0] += 1

    found = run_batch(run, SETTINGS, PROMPTS, Journal(), lambda spec: {})
    assert [one.seconds_left for one in found] == [10, 8, 6, 4, 2, 0]


def test_the_estimate_counts_no_recording_that_is_refused_before_it_begins(monkeypatch):
    """Runs take 2 s. A probe has nothing to compare if only q0 is recorded."""
    now, engine, journal = [1000], Engine(), Journal()
    monkeypatch.setattr(runner.time, "perf_counter", lambda: now[0])

    def run(spec):
        yield from engine.run(spec)
        now[0] += 2

    settings, where = [NamedSpec("plain", RunSpec(record_quantities="q0"))], lambda spec: {}
    list(run_batch(run, settings, PROMPTS[:1], journal, where))
    events = batch_events(run, settings, PROMPTS, journal, where, recordings=Recordings("probe"))
    left = [one.seconds_left for one in events if isinstance(one, Finished)]
    assert left == [pytest.approx(4 * 0.08), 2, 0]  # at first by the time of the kept run


def test_the_estimate_of_a_batch_that_is_recorded_counts_the_recordings_that_are_left(monkeypatch):
    """Runs of 80 ms and their recordings are kept for one prompt of three, then for all."""
    journal, recordings, recorded = Journal(), Recordings("steps"), []
    monkeypatch.setattr(recordings, "due", lambda setting, key: key not in recorded)
    monkeypatch.setattr(recordings, "add", lambda setting, key, trace: recorded.append(key))

    def estimate(prompts, first):
        events = batch_events(
            Engine().run, SETTINGS, prompts, journal, lambda spec: {}, None, recordings, first
        )
        return [one.seconds_left for one in events if isinstance(one, Finished)]

    estimate(PROMPTS[:1], None)
    assert estimate(PROMPTS, 1) == [None, pytest.approx(8 * 0.08)]
    estimate(PROMPTS, None)
    assert estimate(PROMPTS, 1) == [0, 0]


def test_a_recording_that_is_refused_does_not_end_those_of_other_prompts(monkeypatch):
    engine, recordings, added = Engine(), Recordings("steps"), []
    monkeypatch.setattr(recordings, "add", lambda setting, key, trace: added.append(trace))

    def run(spec):
        if spec.record == "steps" and spec.prompt == "a":
            raise ValueError("record: it is too large")
        yield from engine.run(spec)

    list(batch_events(run, SETTINGS[:1], PROMPTS, Journal(), lambda spec: {}, None, recordings))
    assert [trace.meta["spec"]["prompt"] for trace in added] == ["b", "c"]
    assert recordings.problem(0) == "1 left out; the last one: record: it is too large"


def test_settings_with_the_same_spec_have_runs_of_their_own(tmp_path):
    same, path = [NamedSpec("one", RunSpec()), NamedSpec("two", RunSpec())], tmp_path / "runs.jsonl"
    engine, again = Engine(), Engine()
    engine.batch(Journal(path), same)
    assert len(engine.runs) == 6
    assert all(one.resumed for one in again.batch(Journal(path), same))
    assert again.runs == []


def test_an_empty_or_too_large_batch_is_refused(monkeypatch):
    with pytest.raises(ValueError, match=r"^settings: there are none"):
        check_size([], PROMPTS)
    with pytest.raises(ValueError, match=r"^prompts: there are none"):
        check_size(SETTINGS, [])
    with pytest.raises(ValueError, match=r"^settings: two have the same name"):
        check_size([SETTINGS[0], SETTINGS[0]], PROMPTS)
    monkeypatch.setattr(runner, "MAX_RUNS", 5)
    with pytest.raises(ValueError, match=r"^prompts: 3 prompts under 2 settings are 6 runs"):
        check_size(SETTINGS, PROMPTS)


def test_results_are_paired_with_the_first_setting():
    results = BatchResults(SETTINGS, PROMPTS)
    for one in Engine(failing=[("b", "dual")]).batch(Journal()):
        results.add(one.setting, one.prompt, one.outcome)
    plain, dual = results.summary()
    assert (plain["runs"], plain["failed"], plain["known"], plain["right"]) == (3, 0, 2, 1)
    assert (dual["runs"], dual["failed"], dual["pairs"]) == (2, 1, 2)
    assert dual["tokens_per_s"] == pytest.approx(2 / 0.08)
    assert results.table()[1]["runs"][1]["message"] == "prompt: too long"
    assert results.table()[1]["runs"][1]["agreement"] is None
