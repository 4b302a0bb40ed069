"""The share of a network address in the events that wait for Gradio, and in the direct calls."""

import asyncio
from collections import Counter
from itertools import cycle
from types import SimpleNamespace

import pytest
from starlette.requests import Request

from inspector.handlers.uploads import UnreadUploads
from inspector.page.layout import THREADS
from inspector.run_store import RUN_SLOTS
from inspector.server import gate
from inspector.server.gate import (
    CROWDED,
    DIRECT,
    DIRECT_OF_AN_ADDRESS,
    EVENTS_OF_AN_ADDRESS,
    FULL,
    MAX_EVENTS,
    Gate,
    _check_events,
)
from inspector.server.request_checks import Refused
from tests.inspector.test_gate import client, result_of, right, served  # noqa: F401


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


def test_the_direct_calls_of_one_address_leave_threads_for_those_of_another():
    begun = []

    async def calls():
        over = asyncio.Event()

        async def app(scope, receive, send):
            begun.append(scope["client"][0])
            await over.wait()

        checked = Gate(app, 5_000, UnreadUploads())
        callers = [*["me"] * (DIRECT_OF_AN_ADDRESS + 1), "you"]
        made = [
            asyncio.create_task(checked._serve(scope_of(who) | {"path": path}, None, None))
            for who, path in zip(callers, cycle(DIRECT), strict=False)
        ]
        await asyncio.sleep(0)  # all have begun or wait
        at_once = Counter(begun)
        over.set()
        await asyncio.gather(*made)
        return at_once

    assert result_of(calls()) == {"me": DIRECT_OF_AN_ADDRESS, "you": 1}
    assert Counter(begun) == {"me": DIRECT_OF_AN_ADDRESS + 1, "you": 1}
    assert 4 * DIRECT_OF_AN_ADDRESS <= THREADS - RUN_SLOTS


def test_the_direct_calls_of_an_address_and_of_all_take_so_many_bytes(monkeypatch):
    monkeypatch.setattr(gate, "CALL_BYTES", 1)
    monkeypatch.setattr(gate, "HELD_OF_AN_ADDRESS", 20)
    monkeypatch.setattr(gate, "HELD_BYTES", 30)

    async def calls():
        over = asyncio.Event()

        async def app(scope, receive, send):
            await over.wait()

        checked, refused = Gate(app, 5_000, UnreadUploads()), []

        async def ask(who, size):
            try:
                await checked._serve(scope_of(who) | {"path": DIRECT[0]}, None, None, size)
            except Refused as refusal:
                refused.append((who, size, str(refusal), refusal.status))

        sizes = [("me", 9), ("me", 9), ("me", 0), ("you", 10), ("you", 9)]
        made = [asyncio.create_task(ask(*one)) for one in sizes]
        await asyncio.sleep(0)
        over.set()
        await asyncio.gather(*made)
        before = [*refused]
        await ask("me", 19)
        return before, refused, checked._held

    before, refused, held = result_of(calls())
    assert before == refused == [("me", 0, CROWDED, 503), ("you", 10, FULL, 503)]
    assert not held


def test_the_gate_counts_the_body_of_a_direct_call(client, monkeypatch):  # noqa: F811
    size = len(client.build_request("POST", "/", json=right()).content)
    for most, status in ((size, 200), (size - 1, 503)):
        monkeypatch.setattr(gate, "HELD_OF_AN_ADDRESS", gate.CALL_BYTES + most)
        assert client.post("/gradio_api/run/predict", json=right()).status_code == status
