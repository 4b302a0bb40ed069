"""The share of a network address in the runs that go on or are paused."""

import json
from dataclasses import replace
from types import SimpleNamespace

import gradio as gr
import pytest

from engine.core.control import Control
from engine.core.events import QueueFullError
from inspector import run_store
from inspector.handlers.api import Endpoints
from inspector.handlers.estimates import EstimateService
from inspector.handlers.view_service import ViewService
from inspector.run_store import (
    NO_SLOT,
    RUN_SLOTS,
    SLOTS_OF_AN_ADDRESS,
    RaceRecord,
    RunControls,
)
from tests.inspector.conftest import form_values, small_race


@pytest.fixture
def address(monkeypatch):
    """The address of the caller, which the test sets; each may have two runs."""
    caller = {"address": "me"}
    monkeypatch.setattr(run_store, "visitor_address", lambda: caller["address"])
    monkeypatch.setattr(run_store, "SLOTS_OF_AN_ADDRESS", 2)
    return caller


def test_the_paused_runs_of_one_address_leave_room_for_those_of_others(address):
    controls = RunControls(Control)

    def begun(name):
        address["address"] = name
        return controls.new()

    mine = [begun("me"), begun("me")]
    for one in mine:
        one.pause()
    with pytest.raises(QueueFullError, match="from your network address"):
        begun("me")
    others = [begun(name) for name in ("you", "", "", "")]  # who is not known has no share
    assert [one.owner for one in others] == ["you", "", "", ""]
    mine[0].stop()
    assert begun("me").owner == "me"
    assert 2 * SLOTS_OF_AN_ADDRESS <= RUN_SLOTS


def test_a_run_beyond_the_share_is_refused_as_a_notice_and_leaves_nothing(
    handlers, form, session, request_of, address
):
    mine = [handlers.controls.new(), handlers.controls.new()]
    values = form_values(form, small_race(session))
    ((notice, *updates),) = handlers.run(request_of(), values)
    assert json.loads(notice) == {"run": None, "state": "failed", "message": NO_SLOT, "lanes": {}}
    assert not any(update["interactive"] for update in updates)
    assert (handlers.is_live(request_of()), len(handlers.store)) == (False, 0)
    mine[0].stop()
    run = handlers.run(request_of(), values)
    assert next(run)
    run.close()


def test_a_run_that_fails_gives_its_place_back(
    handlers, form, session, request_of, address, monkeypatch
):
    def failing(*given, **more):
        raise OSError

    made = []  # so that no run is over because nothing refers to it

    def making():
        made.append(Control())
        return made[-1]

    values = form_values(form, small_race(session))
    monkeypatch.setattr(session, "race", failing)
    monkeypatch.setattr(handlers, "controls", RunControls(making))
    for _ in range(3):
        *_, (last, *_) = handlers.run(request_of(), values)
        assert json.loads(last)["state"] == "failed"
    assert [one.state for one in made] == ["stopped"] * 3


def test_recordings_that_go_on_take_half_of_their_memory_from_one_address(address):
    controls = RunControls(Control, budget=100_000_000)

    def begun(name, megabytes, replaced=None):
        address["address"] = name
        return controls.new(megabytes * 1_000_000, replaced)

    first = begun("me", 40)
    said = r"may take 20 MB .* from your network address .* take 40 MB, and at most 50 MB are"
    with pytest.raises(QueueFullError, match=said):
        begun("me", 20)
    begun("me", 0)  # nothing is recorded
    other = begun("you", 50)
    with pytest.raises(QueueFullError, match=r"those that go on .* take 90 MB, and at most 100 MB"):
        begun("", 20)
    first = begun("me", 50, first)
    first.stop()
    assert begun("", 20).owner == ""
    assert other.state == "running"


def test_the_first_recording_may_take_more_than_half(address):
    controls = RunControls(Control, budget=100)
    first = controls.new(120)
    with pytest.raises(QueueFullError, match=r"^record: "):
        controls.new(1)
    first.stop()
    assert controls.new(1)


@pytest.fixture
def crowded(handlers, address):
    """The live run of another tab, which leaves the address no memory for a recording."""
    handlers.controls = RunControls(Control, budget=2_000)
    return handlers.controls.new(1_000)


def test_a_recording_without_room_is_refused_as_a_notice(handlers, traces, request_of, crowded):
    record = RaceRecord(state="done", traces=traces)
    handlers.store.put(record)
    event = SimpleNamespace(run=record.run_id, level="layers")
    ((notice, *_),) = ViewService(handlers).record(event, request_of())
    found = json.loads(notice)
    assert (found["run"], found["state"]) == (None, "failed")
    assert "from your network address that go on or are paused" in found["message"]
    crowded.stop()
    *_, (last, *_) = ViewService(handlers).record(event, request_of())
    assert json.loads(last)["state"] == "done"
    assert set(record.recorded) == {"a", "b"}


def test_a_plan_that_fails_before_a_recording_is_said_in_a_notice(
    handlers, traces, request_of, monkeypatch
):
    """As that of a model whose files cannot be read any more."""

    def fail(spec):
        raise OSError("Input/output error")

    record = RaceRecord(state="done", traces=traces)
    handlers.store.put(record)
    monkeypatch.setattr(handlers.session, "plan", fail)
    event = SimpleNamespace(run=record.run_id, level="layers")
    ((notice, *_),) = ViewService(handlers).record(event, request_of())
    assert "Unexpected error in the app (OSError)" in json.loads(notice)["message"]


def test_a_recording_of_the_api_without_room_is_refused(handlers, session, request_of, crowded):
    race = small_race(session, gen_length=16, steps=16)
    given = {"a": race.a.to_dict(), "b": race.b.to_dict()}
    run = Endpoints(handlers, EstimateService(handlers)).run
    given["b"]["record"] = "layers"
    with pytest.raises(gr.Error, match="record: this recording may take"):
        next(run(given, request_of()))
    given["b"]["record"] = "off"
    *_, last = run(given, request_of())
    assert last["state"] == "done"


@pytest.mark.parametrize(("planned", "counted"), [(None, 1600), (300_000_000, 300)])
def test_a_recording_counts_as_planned_or_if_its_size_is_unknown_as_the_largest(
    handlers, session, crowded, planned, counted
):
    """Unknown is that of a model that is neither here nor registered."""
    spec = replace(small_race(session).a, record="layers")
    handlers.session = SimpleNamespace(plan=lambda spec: {"recording_bytes": planned})
    with (
        pytest.raises(QueueFullError, match=f"this recording may take {counted} MB"),
        handlers.live_run("visitor", RaceRecord(), [spec]),
    ):
        pytest.fail("it has begun")
