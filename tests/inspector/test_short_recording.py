"""A race that is short on this machine is recorded after its end; others are not."""

import json
from types import SimpleNamespace

import gradio as gr
import pytest

from inspector import run_store
from inspector.handlers.page_handlers import BUTTONS
from inspector.handlers.view_service import (
    ViewService,
    recording_problem,
    recording_specs,
    total_ms,
)
from inspector.run_store import RaceRecord
from tests.inspector.conftest import small_race


@pytest.fixture
def finished(handlers, traces, request_of):
    """The visitor's last race, finished."""
    record = RaceRecord(state="done", traces=traces, record_next=True)
    for trace in traces.values():
        trace.meta["metrics"]["total_ms"] = 1_000.0
    handlers.store.put(record)
    handlers.live_runs.show("visitor", record.run_id)
    return record


def said(handlers, request_of):
    """The messages of the recording; none if nothing is recorded."""
    updates = list(ViewService(handlers).record_short_run(request_of()))
    return [json.loads(first) for first, *_ in updates if isinstance(first, str)]


def test_a_short_race_is_recorded_with_its_progress(handlers, finished, request_of):
    news = said(handlers, request_of)
    assert [one["state"] for one in news[:-1]] == ["recording"] * (len(news) - 1)
    assert news[-1]["state"] == "done"
    assert news[-1]["message"] == ""
    whole = sum(trace.steps for trace in finished.traces.values())
    assert news[-2]["message"] == f"{whole} of {whole} steps recorded"
    assert {trace.meta["spec"]["record"] for trace in finished.recorded.values()} == {"layers"}
    assert said(handlers, request_of) == [], "it is recorded once"


def test_the_recording_can_be_stopped(handlers, finished, request_of, monkeypatch):
    monkeypatch.setattr("inspector.handlers.view_service.MAX_HZ", 1e9)
    stream = ViewService(handlers).record_short_run(request_of())
    next(stream)
    handlers.flag("stop")(request_of())
    news = [json.loads(first) for first, *_ in stream]
    assert (news[-1]["state"], finished.recorded) == ("done", {})
    assert "stopped and is discarded" in news[-1]["message"]


def test_an_upload_after_a_stopped_recording_does_not_begin_it_again(
    handlers, finished, request_of, monkeypatch
):
    """It is refused while nothing runs, and then a short race would be recorded."""
    monkeypatch.setattr("inspector.handlers.view_service.MAX_HZ", 1e9)
    stream = ViewService(handlers).record_short_run(request_of())
    next(stream)
    handlers.flag("stop")(request_of())
    list(stream)
    assert (said(handlers, request_of), finished.recorded) == ([], {})


def test_a_race_that_no_run_button_started_is_not_recorded(handlers, finished, request_of):
    """As a branch: nothing follows its run, but an upload may come after it."""
    finished.record_next = False
    assert said(handlers, request_of) == []


def test_a_race_that_was_run_may_be_recorded_after_it(handlers, request_of):
    race = small_race(handlers.session)
    list(handlers.run_race(race, "visitor"))
    assert handlers.current(request_of()).record_next
    said(handlers, request_of)
    assert not handlers.current(request_of()).record_next


def test_a_recording_of_another_length_is_discarded_in_words(traces, recorded):
    """As of an imported run, of a model of the same name with another tokenizer."""
    imported = RaceRecord(state="imported", traces={"a": traces["a"]})
    assert "gave other tokens" in recording_problem(imported, {"a": recorded[1]})


def test_a_second_recording_replaces_the_first(handlers, finished, request_of, monkeypatch):
    monkeypatch.setattr("inspector.handlers.view_service.MAX_HZ", 1e9)
    views, asked = ViewService(handlers), SimpleNamespace(run=finished.run_id, level="probe")
    first = views.record_short_run(request_of())
    next(first)
    second = views.record(asked, request_of())
    next(second)
    assert list(first) == [], "it was stopped, and its messages would replace those of the second"
    *_, last = second
    assert json.loads(last[0])["state"] == "done"
    assert {trace.meta["spec"]["record"] for trace in finished.recorded.values()} == {"probe"}


def test_what_follows_an_upload_does_not_stop_a_recording(
    handlers, finished, request_of, monkeypatch
):
    """A file that is uploaded during it is refused, and then a short race would be recorded."""
    monkeypatch.setattr("inspector.handlers.view_service.MAX_HZ", 1e9)
    asked = SimpleNamespace(run=finished.run_id, level="probe")
    first = ViewService(handlers).record(asked, request_of())
    next(first)
    assert said(handlers, request_of) == []
    assert json.loads(list(first)[-1][0])["state"] == "done"
    assert {trace.meta["spec"]["record"] for trace in finished.recorded.values()} == {"probe"}


def test_a_recording_can_be_stopped_and_not_paused(handlers, finished, request_of):
    first, second, *_, last = ViewService(handlers).record_short_run(request_of())
    for update in (first, second):  # a plan of an earlier moment may enable Run in between
        updates = zip(BUTTONS, update[1:], strict=True)
        assert [name for name, one in updates if one["interactive"]] == ["stop"]
    assert not any(one["interactive"] for one in last[1:])


def test_a_race_that_was_stopped_is_not_recorded(handlers, finished, request_of):
    """The recording would be of steps that the lanes never took."""
    finished.state = finished.traces["b"].meta["reason"] = "stopped"
    event = SimpleNamespace(run=finished.run_id, level="layers")
    ((said, *_),) = ViewService(handlers).record(event, request_of())
    message = json.loads(said)["message"]
    assert message.startswith("Nothing to record. Lane B ended at step")
    assert "run the race to its end" in message
    assert finished.recorded == {}


def test_a_recording_that_is_impossible_stops_no_run_and_leaves_no_copy(
    handlers, traces, request_of
):
    traces["b"].meta["reason"] = "stopped"
    shared = RaceRecord(state="imported", traces=traces)
    handlers.store.pin(shared)
    live = handlers.controls.new()
    handlers.live_runs.begin("visitor", "run", live)
    event = SimpleNamespace(run=shared.run_id, level="layers")
    ((said, *updates),) = ViewService(handlers).record(event, request_of())
    assert json.loads(said)["message"].startswith("Nothing to record. Lane B ended")
    assert updates == [gr.skip()] * len(BUTTONS), "they are those of the run that goes on"
    assert (live.state, len(handlers.store)) == ("running", 0)


def test_a_recording_that_is_refused_leaves_no_copy(handlers, traces, request_of, monkeypatch):
    shared = RaceRecord(state="example", traces=traces)
    handlers.store.pin(shared)
    monkeypatch.setattr(run_store, "visitor_address", lambda: "me")
    monkeypatch.setattr(run_store, "SLOTS_OF_AN_ADDRESS", 0)
    event = SimpleNamespace(run=shared.run_id, level="layers")
    ((said, *_),) = ViewService(handlers).record(event, request_of())
    assert json.loads(said)["message"].startswith("queue: too many runs")
    assert len(handlers.store) == 0
    assert handlers.live_runs.last("visitor") is None


def test_only_a_race_that_all_visitors_share_is_copied_for_a_recording(
    handlers, traces, request_of
):
    """The visitor's own copy is recorded again as it is."""
    shared = RaceRecord(state="example", traces=traces)
    handlers.store.pin(shared)

    def recorded(run):
        event = SimpleNamespace(run=run, level="layers")
        *_, (last, *_) = ViewService(handlers).record(event, request_of())
        return json.loads(last)["run"]

    own = recorded(shared.run_id)
    assert own != shared.run_id
    assert shared.recorded == {}
    assert recorded(own) == own
    assert len(handlers.store) == 1


@pytest.mark.parametrize("run", ["", None, 3, "gone"])
def test_only_a_race_that_is_in_memory_is_recorded(handlers, finished, request_of, run):
    """No other race, as the last one, is recorded in its place."""
    event = gr.EventData(None, {"run": run, "level": "layers"})
    ((said, *_),) = ViewService(handlers).record(event, request_of())
    assert json.loads(said)["message"].startswith("Nothing to record. ")
    assert finished.recorded == {}


@pytest.mark.parametrize("state", ["stopped", "failed", "memory", "example", "imported"])
def test_only_finished_races_are_recorded(handlers, finished, request_of, state):
    finished.state = state
    assert said(handlers, request_of) == []


@pytest.mark.parametrize("spent", [3_334.0, float("nan"), None])
def test_a_race_that_may_take_long_is_not_recorded(handlers, finished, request_of, spent):
    for trace in finished.traces.values():
        trace.meta["metrics"]["total_ms"] = spent
    assert said(handlers, request_of) == []
    assert finished.recorded == {}


def test_a_recording_that_a_limit_or_a_quota_stands_against_is_not_begun(
    handlers, finished, request_of, monkeypatch
):
    asked, plan = [], handlers.session.plan

    def refuse(spec):
        asked.append(spec.record)
        raise ValueError("record: too large")

    monkeypatch.setattr(handlers.session, "plan", refuse)
    assert said(handlers, request_of) == []
    finished.record_next = True
    monkeypatch.setattr(handlers.session, "plan", lambda spec: plan(spec) | {"gpu_seconds": 20})
    assert said(handlers, request_of) == []
    assert asked == ["layers", "layers"]


def test_a_recording_whose_models_do_not_fit_together_is_not_begun(
    handlers, finished, request_of, monkeypatch
):
    """It needs more memory than the race, which fitted."""

    def refuse(race, plans):
        assert (race.a.record, race.b.record) == ("layers", "layers")
        raise ValueError("model: too large together")

    monkeypatch.setattr(handlers.session, "check_race", refuse)
    assert said(handlers, request_of) == []


def test_a_recording_beyond_the_share_of_the_address_is_left_out_in_silence(
    handlers, finished, request_of, monkeypatch
):
    """Nobody asked for it."""
    monkeypatch.setattr(run_store, "visitor_address", lambda: "me")
    monkeypatch.setattr(run_store, "SLOTS_OF_AN_ADDRESS", 0)
    assert said(handlers, request_of) == []
    assert (finished.recorded, handlers.is_live(request_of())) == ({}, False)


def test_a_race_that_another_visitor_sees_too_is_not_recorded(handlers, finished, request_of):
    """The data that their page asks for would be those of another version."""
    handlers.live_runs.show("other", finished.run_id)
    assert said(handlers, request_of) == []
    assert finished.recorded == {}


def test_a_page_that_has_run_nothing_records_nothing(handlers, request_of):
    updates = list(ViewService(handlers).record_short_run(request_of()))
    assert updates == [[gr.skip()] * len(updates[0])]


def test_times_that_contain_a_recording_predict_nothing(recorded):
    timed, kept = recorded
    assert 0 < total_ms(timed) < 60_000
    assert total_ms(kept) == float("inf")
    specs = recording_specs(RaceRecord(traces={"b": timed}), "probe", ())
    assert {lane: spec.record for lane, spec in specs.items()} == {"b": "probe"}


@pytest.mark.parametrize("asked", [None, "time", [], [{"a": 1}], [["time"]], ["r", "a", "drift"]])
def test_a_view_that_is_no_document_is_refused(handlers, asked):
    assert set(json.loads(ViewService(handlers).document(asked))) == {"missing"}
