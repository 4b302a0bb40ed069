"""Requests that hostile visitors send: routes, bodies, paths out of the cache."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote

from hypothesis import strategies as st

from tests.support.browser import ROOT
from tests.support.hostile import junk

PREFIXES = (
    "/gradio_api/file=", "/gradio_api/file/", "/static/", "/assets/", "/svelte/", "/gradio_api/",
    "/gradio_api/proxy=", "/gradio_api/stream/a/", "/gradio_api/custom_component/a/client/b/",
    "/gradio_api/heartbeat/", "/gradio_api/call/plan/", "/gradio_api/upload_progress?upload_id=",
    "/gradio_api/deep_link?session_hash=", "/config?deep_link=", "/?deep_link=", "/pwa_icon/",
    "/theme.css?", "/monitoring/", "/gradio_api/info?all_endpoints=", "/",
)  # fmt: skip
ROUTES = (
    "/queue/join", "/run/plan", "/api/run", "/call/plan", "/call/v2/trace", "/call/v2/", "/cancel",
    "/reset", "/component_server", "/upload", "/stream/a", "/vibe-edit", "/vibe-code",
    "/process_recording", "/run-history/connect", "/nothing", "/run/predict", "/call/",
)  # fmt: skip
KEYS = ("data", "fn_index", "session_hash", "event_data", "event_id", "trigger_id", "component_id",
        "fn_name", "batched", "simple_format", "race", "run", "lane", "view")  # fmt: skip
numbers = st.integers(0, 999)
events = junk | st.dictionaries(st.sampled_from(("level", "preset", "back", "lane", "step")), junk)
listeners = st.tuples(
    numbers,
    st.lists(st.integers(0, 199), min_size=1, max_size=3),
    st.lists(junk, min_size=3, max_size=3),
    events,
)
served = st.tuples(numbers, junk)
documents = junk | st.dictionaries(st.sampled_from(KEYS), junk, max_size=6)
BYTES = (b"[" * 50_000, b'{"data":' * 5_000, b"\xff", b"{", b'{"data":[NaN]}', b"1" * 9_000)
raw = st.none() | st.none() | st.binary(max_size=50) | st.sampled_from(BYTES)
bodies = st.tuples(st.sampled_from(ROUTES), documents, raw)


def paths(outside: st.SearchStrategy) -> st.SearchStrategy:
    """A route's beginning, a path out of the cache, a method."""
    return st.tuples(st.sampled_from(PREFIXES), outside, st.sampled_from(("GET", "HEAD")))


def files(outside: st.SearchStrategy) -> st.SearchStrategy:
    """A path, a name, data, and whether they are uploaded first."""
    names = outside | st.text(max_size=30) | st.sampled_from(("a.npz", "a.json", "-", "."))
    return st.tuples(outside, names, st.binary(max_size=200), st.booleans())


def spellings(path: Path) -> list[str]:
    """A path as hostile visitors spell it."""
    up = "../" * 12
    plain = str(path)
    return [
        plain, quote(plain, safe=""), up + plain[1:], quote(up + plain[1:], safe=""),
        "file://" + plain, "//" + plain, plain + "%00", plain + "%00.npz", "http://127.0.0.1:1/x",
        "http://127.1:1/latest", "https://localhost/x", plain.replace("/", "\\"),
        os.path.relpath(plain, ROOT), plain + "/.", "~/x", "." + plain, "%2e%2e%2f" * 9 + plain[1:],
    ]  # fmt: skip
