"""What a call of the API of many prompts keeps after its end, and what a second call changes."""

from types import SimpleNamespace

import gradio as gr
import pytest

from engine.batch.service import BatchService
from engine.core.events import Waiting
from inspector import run_store
from inspector.handlers.tasks.batch_api import BatchEndpoints
from inspector.run_store import RunControls

ASKED = {"prompts": "one\ntwo", "spec": {"gen_length": 8, "block_length": 8, "steps": 4}}


@pytest.fixture
def endpoints(session):
    handlers = SimpleNamespace(session=session, controls=RunControls(session.control))
    return BatchEndpoints(handlers, BatchService(session))


def test_a_call_leaves_no_control(endpoints):
    *_, last = endpoints.batch(ASKED | {"estimate": True})
    assert last["state"] == "estimated"
    assert not any(control.state == "running" for control in endpoints._handlers.controls._made)


def test_a_call_beyond_the_share_of_the_address_is_refused(endpoints, monkeypatch):
    monkeypatch.setattr(run_store, "visitor_address", lambda: "me")
    monkeypatch.setattr(run_store, "SLOTS_OF_AN_ADDRESS", 0)
    with pytest.raises(gr.Error, match="too many runs from your network address"):
        list(endpoints.batch(ASKED))


def test_a_call_that_continues_a_running_batch_is_refused_and_does_not_stop_it(
    endpoints, monkeypatch
):
    monkeypatch.setattr("inspector.handlers.tasks.task_api.MAX_HZ", 1e9)
    first = endpoints.batch(ASKED)
    batch = next(first)["batch"]
    with pytest.raises(gr.Error, match="running"):
        list(endpoints.batch({"batch": batch}))
    *_, last = first
    assert (last["state"], last["done"]) == ("done", 2)


def test_a_message_says_what_the_batch_waits_for(endpoints):
    def run(control, first):
        yield Waiting("calibrating", 3, 32, "m", unit="layers")

    task = SimpleNamespace(run=run, progress=dict, figures=dict, rows=lambda first, most: [])
    endpoints.tasks = SimpleNamespace(get=lambda name: task)
    first, _ = endpoints.batch({"batch": "known"})
    said = {"state": "calibrating", "done": 3, "total": 32, "unit": "layers", "what": "m"}
    assert first == {"wait": said}
