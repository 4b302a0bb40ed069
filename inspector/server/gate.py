"""Gate: ASGI middleware in front of Gradio that refuses requests this app does not need."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from weakref import WeakValueDictionary

from starlette.datastructures import Headers, QueryParams
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from inspector.handlers.uploads import UnreadUploads
from inspector.server.request_checks import SESSION, Refused, check_body
from inspector.server.upload_folder import UploadFolder
from inspector.server.visitor_address import address_of

API = "/gradio_api/"
MAX_JSON_BYTES = 1_000_000
FORM_BYTES = 1_000_000  # around the files of an upload
MIN_FOLDER_BYTES = 2_000_000_000
MAX_EVENTS, EVENTS_OF_AN_ADDRESS = 128, 64  # that Gradio has not begun
CROWDED = "queue: too many requests wait from your network address; try again in a minute"
NO_SPACE = "upload: the server has no space for files now; try again in a few minutes"
STALLED_S = 240  # as long as an upload goes on, some old files are not removed
STALLED = "upload: nothing of it arrived for minutes, so it was ended; send it again"
DIRECT = (API + "run/", API + "api/", API + "component_server")  # calls that do not queue
DIRECT_OF_AN_ADDRESS = 16  # of them; a quarter of the threads that all runs leave
HELD_BYTES, HELD_OF_AN_ADDRESS = 128_000_000, 32_000_000  # of those that wait or are served
CALL_BYTES = 16_000  # of one beside its body; it bounds their number, too
FULL = "queue: too many requests wait; try again in a minute"
BLOCKED_PATHS = re.compile(  # Gradio routes that this app does not use
    r"/(monitoring|login|logout|runs)(/|$)"
    r"|/gradio_api/(proxy=|file=https?:|file/|stream/|process_recording|deep_link|dev/|profiling/"
    r"|run-history|custom_component/|(undo-)?vibe-)",
    re.I,
)
RANGE = re.compile(r"bytes=\d{0,19}-\d{0,19}")


class Gate:
    """ASGI middleware that checks routes, the size of bodies before parsing, and JSON bodies.

    A JSON body is read up to MAX_JSON_BYTES and checked by `check_body`. An event is refused while
    EVENTS_OF_AN_ADDRESS of its network address wait for Gradio, so that one visitor's leave room
    for others. Of the calls that do not queue DIRECT_OF_AN_ADDRESS are served at the same time, and
    its other ones wait here, without a thread; one is refused while they take HELD_OF_AN_ADDRESS
    bytes, or those of all addresses HELD_BYTES. An upload is cut off after two traces of
    `trace_bytes`, if nothing of it arrives for STALLED_S seconds, and refused or cut off while the
    upload folder has more than two uploads and MIN_FOLDER_BYTES; its files are added to `uploads`.
    A refusal has a 4xx status, or 503; its `detail` names the field and its correction.
    """

    def __init__(self, app: ASGIApp, trace_bytes: int, uploads: UnreadUploads) -> None:
        self._app = app
        self._uploads = uploads
        self._most_upload = 2 * trace_bytes + FORM_BYTES
        self._folder = UploadFolder()
        self._lines: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        self._held: Counter[str] = Counter()  # bytes of the direct calls of an address

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request to Gradio, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            _check_route(scope)
            passed, size = receive, 0
            if scope["method"] == "POST":
                passed, size = await self._checked_body(scope, receive)
            await self._serve(scope, passed, send, size)
        except Refused as refusal:
            answer = JSONResponse({"detail": str(refusal)}, refusal.status)
            await answer(scope, receive, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send, size: int = 0) -> None:
        """Pass a request, of which `size` bytes are held, to Gradio when it is its turn."""
        if _path(scope).startswith(DIRECT):
            own = address_of(Request(scope))
            with self._holding(own, CALL_BYTES + size):
                async with self._lines.setdefault(own, asyncio.Semaphore(DIRECT_OF_AN_ADDRESS)):
                    await self._app(scope, receive, send)
            return
        if not _is_upload(scope):
            await self._app(scope, receive, send)
            return
        try:
            with self._folder.receiving():
                await self._app(scope, receive, _counting(send, self._uploads))
        except TypeError:  # Gradio raises it for a form field that is not a file
            raise Refused("upload: expected files, each with a name") from None

    @contextmanager
    def _holding(self, own: str, size: int) -> Iterator[None]:
        """Count the bytes of an address's direct call until it is over, or refuse it."""
        if self._held[own] + size > HELD_OF_AN_ADDRESS:
            raise Refused(CROWDED, 503)
        if self._held.total() + size > HELD_BYTES:
            raise Refused(FULL, 503)
        self._held[own] += size
        try:
            yield
        finally:
            self._held[own] -= size
            if not self._held[own]:
                del self._held[own]

    async def _checked_body(self, scope: Scope, receive: Receive) -> tuple[Receive, int]:
        """Check a POST request's body; returns the channel that gives it to Gradio, and its size.

        The size of an upload is 0, since its bytes are not held.
        """
        kind = Headers(scope=scope).get("content-type", "").split(";")[0].strip().lower()
        uploads = _is_upload(scope)
        expected = "multipart/form-data" if uploads else "application/json"
        if kind != expected:
            raise Refused(f"Content-Type: expected {expected}", 415)
        if uploads:
            _check_length(scope, self._most_upload)
            most_held = max(MIN_FOLDER_BYTES, 2 * self._most_upload)
            folder = Path(scope["app"].uploaded_file_dir)
            if await self._folder.held(folder, most_held) > most_held:
                raise Refused(NO_SPACE, 413)
            return _limited(receive, self._most_upload, self._folder.add, most_held), 0
        _check_length(scope, MAX_JSON_BYTES)
        body = await _read(receive, MAX_JSON_BYTES)
        route = _path(scope).rstrip("/").removeprefix(API)
        check_body(scope["app"], route, body)
        if route == "queue/join" or route.startswith("call/"):
            _check_events(scope)
        return _replayed(body, receive), len(body)


def _path(scope: Scope) -> str:
    """The path as the router reads it: without the root path below which a proxy serves the app."""
    root, path = scope.get("root_path", ""), str(scope["path"])
    return path.removeprefix(root) if path.startswith(root + "/") else path


def _is_upload(scope: Scope) -> bool:
    return _path(scope).rstrip("/") == API + "upload"


def _check_route(scope: Scope) -> None:
    """Refuse a blocked route, an invalid session id and an invalid Range header."""
    path, headers = _path(scope), Headers(scope=scope)
    if BLOCKED_PATHS.match(path):
        raise Refused("path: this app does not serve it", 404)
    if not RANGE.fullmatch(headers.get("range", "bytes=-")):
        raise Refused("Range: expected bytes=FIRST-LAST", 416)
    if path.startswith(API + "queue/data"):
        given = QueryParams(scope["query_string"]).get("session_hash", "")  # the last, as Gradio
    elif path.startswith(API + "heartbeat/"):
        given = path.removeprefix(API + "heartbeat/")
    else:
        return
    if not SESSION.fullmatch(given):
        raise Refused("session_hash: expected 1 to 64 letters, digits, - or _", 422)


def _check_length(scope: Scope, most: int) -> None:
    """Refuse a request whose Content-Length header is above `most` bytes."""
    given = Headers(scope=scope).get("content-length", "0")
    if not given.isdecimal() or int(given) > most:
        raise Refused(f"body: larger than {most // 1_000_000} MB; send less", 413)


def _check_events(scope: Scope) -> None:
    """Refuse an event of an address that has enough in line, as Gradio does if its line is full."""
    queues = scope["app"].get_blocks()._queue.event_queue_per_concurrency_id.values()
    own = address_of(Request(scope))
    waiting = [address_of(event.request) for queue in queues for event in queue.queue]
    if waiting.count(own) >= EVENTS_OF_AN_ADDRESS:
        raise Refused(CROWDED, 503)


async def _read(receive: Receive, most: int) -> bytes:
    parts, size, more = [], 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Refused("body: incomplete", 400)
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        more = message.get("more_body", False)
        if size > most:
            raise Refused(f"body: larger than {most // 1_000_000} MB; send less", 413)
    return b"".join(parts)


def _replayed(body: bytes, receive: Receive) -> Receive:
    """A channel that gives a body that was already read, then continues with `receive`."""
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return waiting.pop() if waiting else await receive()

    return replay


def _counting(send: Send, uploads: UnreadUploads) -> Send:
    """The channel `send` of an upload; its files are in `uploads` before their paths are sent."""
    parts: list[bytes] = []
    taken = False

    async def count(message: Message) -> None:
        nonlocal taken
        if message["type"] == "http.response.start":
            taken = message["status"] == 200
        elif message["type"] == "http.response.body" and taken:
            parts.append(message.get("body", b""))
            if not message.get("more_body", False):
                uploads.add(json.loads(b"".join(parts)))  # as Gradio's upload route answers
        await send(message)

    return count


def _limited(receive: Receive, most: int, arrived: Callable[[int], int], most_held: int) -> Receive:
    """The channel `receive`, ended by a 413 error after `most` bytes, or if the folder is full.

    `arrived` gets the size of each part and returns the bytes in the folder, `most_held` at most.
    A wait of STALLED_S seconds for a part ends it by a 408 error.
    """
    size = 0

    async def count() -> Message:
        nonlocal size
        try:
            async with asyncio.timeout(STALLED_S):
                message = await receive()
        except TimeoutError:
            raise HTTPException(408, STALLED) from None
        part = len(message.get("body", b""))
        size += part
        held = arrived(part)
        if size > most:
            raise HTTPException(413, f"upload: larger than {most // 1_000_000} MB; send less")
        if held > most_held:  # other uploads came at the same time
            raise HTTPException(413, NO_SPACE)
        return message

    return count
