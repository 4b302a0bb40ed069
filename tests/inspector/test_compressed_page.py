"""The page is compressed, and nothing else is."""

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from inspector.server.compressed_page import CompressedPage

TEXT = "mask " * 1_000


@pytest.fixture(scope="module")
def client():
    async def answer(request):
        return PlainTextResponse(TEXT)

    routes = [Route(path, answer) for path in ("/", "/gradio_api/queue/data")]
    return TestClient(Starlette(routes=routes, middleware=[Middleware(CompressedPage)]))


@pytest.mark.parametrize(
    ("path", "accepted", "coding"),
    [("/", "gzip", "gzip"), ("/", "identity", None), ("/gradio_api/queue/data", "gzip", None)],
)
def test_the_page_alone_is_compressed(client, path, accepted, coding):
    found = client.get(path, headers={"Accept-Encoding": accepted})
    assert found.text == TEXT
    assert found.headers.get("content-encoding") == coding
