"""The share of a network address in the runs that go on or are paused."""

import json

import gradio as gr
import pytest

from engine.core.control import Control
from inspector import run_store
from inspector.run_store import RUN_SLOTS, SLOTS_OF_AN_ADDRESS, RunControls
from tests.inspector.conftest import small_race


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
    with pytest.raises(gr.Error, match="from your network address"):
        begun("me")
    others = [begun(name) for name in ("you", "", "", "")]  # who is not known has no share
    assert [one.owner for one in others] == ["you", "", "", ""]
    mine[0].stop()
    assert begun("me").owner == "me"
    assert 2 * SLOTS_OF_AN_ADDRESS <= RUN_SLOTS


def test_a_run_beyond_the_share_leaves_nothing(handlers, form, session, request_of, address):
    mine = [handlers.controls.new(), handlers.controls.new()]
    values = form.values(small_race(session))
    with pytest.raises(gr.Error, match="from your network address"):
        list(handlers.run(request_of(), values))
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

    values = form.values(small_race(session))
    monkeypatch.setattr(session, "race", failing)
    monkeypatch.setattr(handlers, "controls", RunControls(making))
    for _ in range(3):
        *_, (last, *_) = handlers.run(request_of(), values)
        assert json.loads(last)["state"] == "failed"
    assert [one.state for one in made] == ["stopped"] * 3
