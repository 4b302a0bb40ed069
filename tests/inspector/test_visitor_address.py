"""The address of a visitor: that of the connection, or the one that a proxy names."""

import gradio as gr
import httpx
import pytest

from engine.core.control import Control
from inspector.run_store import RunControls
from inspector.server.visitor_address import visitor_address


@pytest.fixture(scope="module")
def url():
    """The address of a page whose endpoint says who owns a run of its caller."""

    def owner() -> str:
        return RunControls(Control).new().owner

    with gr.Blocks(analytics_enabled=False) as page:
        gr.api(owner, api_name="owner", queue=False)
    _, url, _ = page.launch(prevent_thread_lock=True, quiet=True, ssr_mode=False)
    yield url
    page.close()


@pytest.mark.parametrize(
    ("forwarded", "expected"),
    [("", "127.0.0.1"), ("203.0.113.7", "203.0.113.7"), ("203.0.113.7, 10.0.0.1", "203.0.113.7")],
)
def test_a_run_is_owned_by_the_address_of_its_visitor(url, forwarded, expected):
    headers = {"X-Forwarded-For": forwarded} if forwarded else {}
    answer = httpx.post(f"{url}gradio_api/run/owner", json={"data": []}, headers=headers)
    assert answer.json()["data"] == [expected]


def test_outside_of_a_listener_the_address_is_not_known():
    assert visitor_address() == ""
