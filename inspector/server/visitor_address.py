"""The network address of a visitor, which all tabs of a browser share.

It serves fair shares only, not security: a program can name any address, and the visitors behind
one connection, such as a class, have the same one.
"""

from __future__ import annotations

from typing import Any

from gradio.context import LocalContext

MAX_CHARS = 64


def visitor_address() -> str:
    """The address of whoever called this listener; empty outside of a listener."""
    request = LocalContext.request.get(None)
    return "" if request is None else address_of(request)


def address_of(request: Any) -> str:
    """The address that a request comes from; empty if it is not known.

    Behind proxies, as on a Space, it is the first one of the header X-Forwarded-For.
    """
    forwarded = str(request.headers.get("x-forwarded-for", "")).partition(",")[0].strip()
    return forwarded[:MAX_CHARS] or (str(request.client.host) if request.client else "")
