"""Calls whose stream nobody reads are stopped."""

import threading
import time
from collections.abc import Iterator

import gradio as gr
import httpx
import pytest
from gradio_client import Client

from inspector.server import abandoned_calls
from inspector.server.abandoned_calls import check_stream_is_read

MESSAGES = 15


def wait_for_the_reader():
    """Until the messages are read, which begins late on a busy machine."""
    end = time.monotonic() + 20
    while abandoned_calls.unread_messages() and time.monotonic() < end:
        time.sleep(0.001)


@pytest.fixture
def served(monkeypatch):
    """The address of a page with an endpoint that streams, and how its calls end."""
    monkeypatch.setattr(abandoned_calls, "MOST_UNREAD", 10)
    ended, over = [], threading.Event()

    def stream(is_read: bool) -> Iterator[int]:
        try:
            for i in range(MESSAGES):
                check_stream_is_read()
                yield i
                if is_read:
                    wait_for_the_reader()
            ended.append(None)
        except gr.Error as error:
            ended.append(error.message)
            raise
        finally:
            over.set()

    with gr.Blocks(analytics_enabled=False) as page:
        gr.api(stream, api_name="stream")
    _, url, _ = page.launch(prevent_thread_lock=True, quiet=True, ssr_mode=False)
    yield url, ended, over
    page.close()


def test_a_call_whose_stream_is_not_read_is_stopped(served):
    url, ended, over = served
    httpx.post(f"{url}gradio_api/call/stream", json={"data": [False]}).raise_for_status()
    assert over.wait(20)
    assert ended == ["call: nobody reads its stream; it was stopped"]


def test_a_call_whose_stream_is_read_goes_on_to_its_end(served):
    url, ended, _ = served
    job = Client(url, verbose=False).submit(True, api_name="/stream")
    assert job.result(30) == MESSAGES - 1
    assert ended == [None]


def test_outside_of_a_listener_nothing_is_unread():
    assert abandoned_calls.unread_messages() == 0
