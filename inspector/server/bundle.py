"""The route that serves the page's script."""

from __future__ import annotations

from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from inspector import static_files

YEAR_S = 31_536_000


def bundle_route() -> Route:
    """The route of `static_files.bundle_path`, compressed where the browser accepts it.

    A changed script has another address, so that browsers may keep it for a year.
    """
    compressed = [Middleware(GZipMiddleware)]
    return Route(f"/driftscope/{static_files.BUNDLE}", _serve, middleware=compressed)


async def _serve(request: Request) -> Response:
    return Response(
        static_files.text(static_files.BUNDLE),
        media_type="text/javascript",
        headers={"Cache-Control": f"public, max-age={YEAR_S}, immutable"},
    )
