"""Middleware that compresses the page, of 580 KB to 67, which Gradio sends as it is."""

from __future__ import annotations

from starlette.middleware.gzip import GZipMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send


class CompressedPage:
    """ASGI middleware that compresses the answer of `/` where the browser accepts it.

    Everything else passes as it is, the streams of events above all.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._plain, self._compressed = app, GZipMiddleware(app)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        page = scope["type"] == "http" and scope["path"] == "/"
        await (self._compressed if page else self._plain)(scope, receive, send)
