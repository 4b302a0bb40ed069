"""Slice service: the HTTP route that answers with a slice of a recorded run."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from weakref import WeakValueDictionary

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from engine.core.control import LIFETIME_S
from engine.trace.trace import Trace
from inspector.handlers.page_handlers import Handlers
from inspector.protocol import LANES
from inspector.run_store import GONE, NO_RUN
from inspector.server.visitor_address import address_of
from inspector.slices import registry
from inspector.slices.cache import Body, SliceCache
from inspector.slices.fields import Fields, SliceError

PATH = "/driftscope/slice"
MAX_QUERY = 1_000
AT_ONCE, OF_AN_ADDRESS = 2, 4  # slices that are cut; those and the ones in line for it
GZIP_LEVEL, GZIP_FROM = 1, 1_000
HEADERS = {
    "Cache-Control": f"private, max-age={LIFETIME_S}, immutable",
    "Vary": "Accept-Encoding",
    "X-Content-Type-Options": "nosniff",
}


class SliceService:
    """Slices of the races in the run store, cut outside of their locks and cached.

    At most AT_ONCE slices are cut at the same time, by as many threads, which bounds the memory
    needed for it. Further requests wait without a thread, in the order of their arrival; of one
    network address OF_AN_ADDRESS are in that line, so that its other ones delay nobody else.
    """

    def __init__(self, handlers: Handlers, cache: SliceCache | None = None) -> None:
        self._handlers = handlers
        self.cache = cache or SliceCache()
        self.threads = ThreadPoolExecutor(AT_ONCE, "slices")
        self._lines: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    def routes(self) -> tuple[Route, ...]:
        """The routes to add to Gradio's app."""
        return (Route(PATH, self.respond, methods=["GET"]),)

    async def respond(self, request: Request) -> Response:
        """Answer a request with a slice, or with a 4xx status and `{"detail", "field"}`."""
        try:
            given, packed = _given(request), _accepts_gzip(request)
            loop, address = asyncio.get_running_loop(), address_of(request)
            async with self._lines.setdefault(address, asyncio.Semaphore(OF_AN_ADDRESS)):
                body = await loop.run_in_executor(self.threads, self.slice, given, packed)
        except SliceError as error:
            document = {"detail": str(error), "field": error.field}
            return JSONResponse(document, error.status, {"Cache-Control": "no-store"})
        coding = {"Content-Encoding": body.coding} if body.coding else {}
        return Response(body.data, headers=HEADERS | coding, media_type="application/octet-stream")

    def slice(self, given: Mapping[str, str], packed: bool = False) -> Body:
        """The encoded slice that the parameters `given` ask for.

        With `packed` it is compressed by gzip where that makes it smaller. Raises SliceError.
        """
        fields = Fields(given)
        trace = self._trace(fields)
        key = (packed, *sorted(given.items()))
        found = self.cache.get(key)
        if found is None:
            caches = self._handlers.form.catalog.methods["cache"]
            what_if = self._handlers.session.what_if
            found = Body(registry.cut(trace, fields, caches, what_if))
            if packed and len(found.data) >= GZIP_FROM:
                small = gzip.compress(found.data, GZIP_LEVEL, mtime=0)
                found = Body(small, "gzip") if len(small) < len(found.data) else found
            self.cache.put(key, found)
        return found

    def _trace(self, fields: Fields) -> Trace:
        """The trace of the run and lane that the fields name, safe to read without its lock."""
        record = self._handlers.store.get(fields.name("run"))
        if record is None:
            raise SliceError("run", GONE, 404)
        lane, version = fields.choice("lane", LANES), fields.name("version")
        with record.lock:
            if record.state == "running":
                raise SliceError("run", "it has not ended; ask again when it has", 409)
            if version != record.version:
                raise SliceError("version", f"the run has changed; ask for {record.version}", 409)
            found = record.trace_for_views(lane)
            if found is None:
                raise SliceError("lane", NO_RUN, 404)
            return found.snapshot()


def _given(request: Request) -> dict[str, str]:
    """The parameters of a request, each given once."""
    if len(request.url.query) > MAX_QUERY:
        raise SliceError("query", f"longer than {MAX_QUERY} characters; leave out what is unknown")
    items = request.query_params.multi_items()
    given = dict(items)
    for name in given:
        if sum(name == other for other, _ in items) > 1:
            raise SliceError(name[:50], "given twice; give it once")
    return given


def _accepts_gzip(request: Request) -> bool:
    """Whether a request's Accept-Encoding header allows gzip."""
    for part in request.headers.get("accept-encoding", "").split(","):
        name, _, quality = part.strip().partition(";")
        if name.strip().lower() == "gzip":
            return quality.strip().replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False
