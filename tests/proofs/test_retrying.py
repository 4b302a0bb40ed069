"""Visitors reconnect if a connection fails before the response, up to a deadline."""

import json
import socket
import struct
import threading
from contextlib import contextmanager

import httpx
import pytest

from tests.support.retrying import RetryingTransport
from tests.support.web import config_of

BODY = json.dumps({"components": [], "dependencies": []}).encode()
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n"
RESET = struct.pack("ii", 1, 0)  # SO_LINGER with zero seconds: close() sends RST


@contextmanager
def server(answer):
    """A server on a free port; `answer` takes each connection and its number. Yields its URL."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve():
            number = 0
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                with connection:
                    answer(connection, number)
                number += 1

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)
    thread.join(10)


def reset(connection):
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)


def test_a_connection_that_is_reset_at_first_is_retried():
    attempts = []

    def answer(connection, number):
        attempts.append(number)
        if number < 3:
            reset(connection)
            return
        connection.recv(4096)
        connection.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY)

    with server(answer) as url:
        assert config_of(url) == json.loads(BODY)
    assert attempts == [0, 1, 2, 3]


def test_the_error_is_raised_after_the_deadline():
    with (
        server(lambda connection, number: reset(connection)) as url,
        httpx.Client(transport=RetryingTransport(deadline=0.2)) as client,
        pytest.raises((httpx.NetworkError, httpx.RemoteProtocolError)),
    ):
        client.get(url)


def test_an_error_after_the_start_of_the_response_is_raised_at_once():
    attempts = []

    def answer(connection, number):
        attempts.append(number)
        connection.recv(4096)
        connection.sendall(HEAD + b"Content-Length: 99\r\n\r\n{")
        reset(connection)

    with (
        server(answer) as url,
        httpx.Client(transport=RetryingTransport(deadline=5)) as client,
        pytest.raises((httpx.NetworkError, httpx.RemoteProtocolError)),
    ):
        client.get(url)
    assert attempts == [0]
