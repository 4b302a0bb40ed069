"""HTTP client for tests that reconnects, as a browser does, if a connection fails."""

from __future__ import annotations

import time

import httpx

DEADLINE = 60.0  # seconds
FIRST_WAIT, MAX_WAIT = 0.05, 2.0  # seconds between attempts, doubled each time


class RetryingTransport(httpx.HTTPTransport):
    """Sends a request again if its connection fails before the response begins.

    A server on a busy machine may reset a connection, for example when a keep-alive timeout is due
    at the moment of the request. The error is raised once `deadline` seconds have passed. Errors
    after the start of the response are raised at once.
    """

    def __init__(self, deadline: float = DEADLINE) -> None:
        super().__init__(verify=False)  # the apps have no certificates, and reading all is slow
        self._deadline = deadline

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request until its response begins."""
        end, wait = time.monotonic() + self._deadline, FIRST_WAIT
        while True:
            try:
                return super().handle_request(request)
            except (httpx.NetworkError, httpx.RemoteProtocolError):
                if time.monotonic() + wait > end:
                    raise
            time.sleep(wait)
            wait = min(2 * wait, MAX_WAIT)
