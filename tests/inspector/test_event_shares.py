"""The share of a network address in the events that wait for Gradio."""

from types import SimpleNamespace

import pytest
from starlette.requests import Request

from inspector.server import gate
from inspector.server.gate import CROWDED, EVENTS_OF_AN_ADDRESS, MAX_EVENTS, _check_events
from inspector.server.request_checks import Refused
from tests.inspector.test_gate import client, right, served  # noqa: F401


def scope_of(address, waiting=()):
    """A request of an address, to an app with events that wait."""
    queues = {"runs": SimpleNamespace(queue=list(waiting))}
    blocks = SimpleNamespace(_queue=SimpleNamespace(event_queue_per_concurrency_id=queues))
    app = SimpleNamespace(get_blocks=lambda: blocks)
    return {"type": "http", "headers": [], "client": (address, 1), "app": app}


def test_the_events_of_one_address_leave_room_for_those_of_another():
    waiting = [SimpleNamespace(request=Request(scope_of("me")))] * EVENTS_OF_AN_ADDRESS
    _check_events(scope_of("me", waiting[1:]))
    with pytest.raises(Refused, match="from your network address") as refusal:
        _check_events(scope_of("me", waiting))
    assert refusal.value.status == 503  # as Gradio answers if its line is full
    _check_events(scope_of("you", waiting))
    assert MAX_EVENTS > EVENTS_OF_AN_ADDRESS


@pytest.mark.parametrize("route", ["queue/join", "call/double"])
def test_the_gate_refuses_an_event_beyond_the_share(client, monkeypatch, route):  # noqa: F811
    monkeypatch.setattr(gate, "EVENTS_OF_AN_ADDRESS", 0)
    answer = client.post(f"/gradio_api/{route}", json=right())
    assert (answer.status_code, answer.json()["detail"]) == (503, CROWDED)
    assert client.post("/gradio_api/run/predict", json=right()).status_code == 200
