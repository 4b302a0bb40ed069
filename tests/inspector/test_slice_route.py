"""The route of slices: what it answers over HTTP, refuses, caches and locks."""

import asyncio
import gzip
import threading
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlencode

import gradio as gr
import pytest
from fastapi import FastAPI
from gradio.routes import App
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.testclient import TestClient

from inspector.handlers import slice_service
from inspector.handlers.slice_service import GONE, PATH
from inspector.handlers.uploads import UnreadUploads
from inspector.page.layout import build, launch_options
from inspector.run_store import RaceRecord
from inspector.server.gate import Gate
from inspector.slices import registry
from inspector.slices.cache import Body, SliceCache
from inspector.slices.fields import SliceError
from tests.inspector.slices_of import service_of
from tests.inspector.unpacked import decoded
from tests.proofs.slice_times import requests
from tests.support.big_trace import make_big_trace

DRIFT = {"view": "drift", "quantity": "v", "layer": "1"}
PLAIN = {"Accept-Encoding": "identity"}


@pytest.fixture(scope="module")
def record():
    return RaceRecord(state="done", traces={"a": make_big_trace(3, 20, 90, 30)})


@pytest.fixture
def service(record):
    return service_of(record)


@pytest.fixture
def asked(record):
    """The parameters of a slice, with changes; None leaves one out."""

    def make(**changes):
        base = {"run": record.run_id, "lane": "a", "version": record.version} | DRIFT
        return {name: value for name, value in (base | changes).items() if value is not None}

    return make


def small_page():
    with gr.Blocks(analytics_enabled=False) as page:
        gr.HTML("")
    return page


@pytest.fixture(scope="module")
def shared_page():
    """A page that no test changes."""
    return small_page()


@pytest.fixture
def client(service, shared_page):
    with TestClient(app_of(service, shared_page)) as found:
        yield found


def test_the_page_has_the_route(session):
    page = build(session)
    with TestClient(App.create_app(page, app_kwargs=launch_options(page)["app_kwargs"])) as client:
        answer = client.get(PATH, params={"run": "x"})
        assert (answer.status_code, answer.json()["detail"]) == (404, GONE)
        assert client.get("/config").status_code == 200


def app_of(service, page, **options):
    """A page behind the gate, with the service's routes; below another app with `path`."""
    gate = Middleware(Gate, trace_bytes=5_000, uploads=UnreadUploads())
    kwargs = {"middleware": [gate], "routes": [*service.routes()]}
    if options:
        return gr.mount_gradio_app(FastAPI(), page, app_kwargs=kwargs, **options)
    return App.create_app(page, app_kwargs=kwargs)


@pytest.mark.parametrize(
    ("options", "root", "path"),
    [({"path": "/sub"}, "", "/sub"), ({"path": "/sub"}, "/proxy", "/proxy/sub"),
     ({}, "/proxy", "/proxy"), ({}, "/proxy", "")],
)  # fmt: skip
def test_the_route_works_below_another_app_and_a_proxy(service, asked, options, root, path):
    with TestClient(app_of(service, small_page(), **options), root_path=root) as client:
        assert client.get(path + PATH, params=asked()).status_code == 200


def test_an_answer_is_binary_private_and_kept_by_the_browser(client, asked, record):
    answer = client.get(PATH, params=asked(), headers=PLAIN)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["cache-control"].startswith("private, max-age=")
    assert answer.headers["vary"] == "Accept-Encoding"
    assert "content-encoding" not in answer.headers
    cells = decoded(answer.content)[0]["cells"]
    assert (cells == record.traces["a"].arrays()["drift"][:, 1, 1]).all()


@pytest.mark.parametrize("accepted", ["gzip", "br;q=1.0, GZIP;q=0.5", "deflate,gzip"])
def test_an_answer_is_compressed_for_who_accepts_it(client, asked, accepted):
    packed = client.get(PATH, params=asked(), headers={"Accept-Encoding": accepted})
    plain = client.get(PATH, params=asked(), headers=PLAIN)
    assert packed.headers["content-encoding"] == "gzip"
    assert packed.content == plain.content
    assert int(packed.headers["content-length"]) < int(plain.headers["content-length"])


@pytest.mark.parametrize("accepted", ["br", "gzip;q=0", "gzip; q=0.0, br", ""])
def test_an_answer_is_not_compressed_for_others(client, asked, accepted):
    answer = client.get(PATH, params=asked(), headers={"Accept-Encoding": accepted})
    assert "content-encoding" not in answer.headers


WRONG = [  # changes, status, field
    ({"run": "gone"}, 404, "run"),
    ({"run": None}, 422, "run"),
    ({"run": "../x"}, 422, "run"),
    ({"run": "a" * 65}, 422, "run"),
    ({"lane": None}, 422, "lane"),
    ({"lane": "c"}, 422, "lane"),
    ({"lane": "b"}, 404, "lane"),
    ({"version": None}, 422, "version"),
    ({"version": "done-probe"}, 409, "version"),
    ({"view": None}, 422, "view"),
    ({"view": "__class__"}, 422, "view"),
    ({"part": "all"}, 422, "part"),
    ({"quantity": None}, 422, "quantity"),
    ({"quantity": "query"}, 422, "quantity"),
    ({"layer": "3"}, 422, "layer"),
    ({"layer": "-1"}, 422, "layer"),
    ({"layer": "1.0"}, 422, "layer"),
    ({"layer": ""}, 422, "layer"),
    ({"layer": "١"}, 422, "layer"),
    ({"layer": "9" * 40}, 422, "layer"),
    ({"layer": None}, 422, "layer"),
    ({"step": "1"}, 422, "layer"),
    ({"layer": None, "step": "20"}, 422, "step"),
    ({"step_from": "20"}, 422, "step_from"),
    ({"step_from": "5", "step_to": "5"}, 422, "step_to"),
    ({"step_to": "21"}, 422, "step_to"),
    ({"position_from": "x"}, 422, "position_from"),
    ({"position_to": "91"}, 422, "position_to"),
    ({"width": "0"}, 422, "width"),
    ({"height": "5000"}, 422, "height"),
    ({"colour": "red"}, 422, "colour"),
    ({"layer": None, "part": "counts", "code": "255"}, 422, "code"),
    ({"view": "plan", "part": "bits", "step": "1"}, 422, "layer"),
    ({"view": "token", "position": "90"}, 422, "position"),
    ({"view": "queries", "part": "histogram", "layer": "3"}, 422, "layer"),
    ({"view": "queries", "part": "age", "quantity": "q0"}, 422, "quantity"),
    ({"view": "scatter", "x": "k", "y": "v"}, 422, "y"),
    ({"view": "scatter", "x": "v", "y": "ffn", "layer": "3"}, 422, "layer"),
    ({"view": "similarity", "part": "map", "quantity": "ffn"}, 422, "quantity"),
    ({"view": "similarity", "part": "map", "group": "2"}, 422, "group"),
    ({"view": "similarity", "part": "row", "index": "20"}, 422, "index"),
    ({"view": "error", "part": "map", "layer": None, "probe": "8"}, 422, "probe"),
    ({"view": "error", "part": "recall", "quantity": "q0"}, 422, "quantity"),
    ({"view": "error", "part": "predictions", "probe": "8"}, 422, "probe"),
    ({"view": "candidates", "part": "list", "step": "20"}, 422, "step"),
    ({"view": "candidates", "part": "list", "step": "2", "position": "90"}, 422, "position"),
    ({"view": "guider", "part": "step", "step": "20"}, 422, "step"),
    ({"view": "guider", "part": "map", "token_to": "61"}, 422, "token_to"),
]


@pytest.mark.parametrize(("changes", "status", "field"), WRONG)
def test_a_wrong_parameter_is_named(service, asked, changes, status, field):
    with pytest.raises(SliceError) as found:
        service.slice(asked(**changes))
    assert (found.value.status, found.value.field) == (status, field)
    assert status == 404 or str(found.value).startswith(field + ": ")


def test_a_refusal_is_a_document_that_is_not_kept(client, asked):
    answer = client.get(PATH, params=asked(layer="7"))
    said = "layer: expected a whole number from 0 to 2"
    assert (answer.status_code, answer.json()) == (422, {"detail": said, "field": "layer"})
    assert answer.headers["cache-control"] == "no-store"


def test_a_run_that_is_gone_says_so(client, asked):
    answer = client.get(PATH, params=asked(run="gone"))
    assert (answer.status_code, answer.json()["detail"]) == (404, GONE)


def test_a_parameter_is_given_once_and_the_query_is_short(client, asked):
    twice = client.get(PATH, params=[*asked().items(), ("layer", "2")])
    assert (twice.status_code, twice.json()["field"]) == (422, "layer")
    assert client.get(PATH, params=asked(x="y" * 2_000)).json()["field"] == "query"


def test_only_reading_is_served(client, asked):
    assert client.post(PATH, json=asked()).status_code == 405


def test_a_run_that_goes_on_is_not_cut():
    record = RaceRecord(state="running", traces={"a": make_big_trace(1, 4, 16, 8)})
    given = {"run": record.run_id, "lane": "a", "version": record.version} | DRIFT
    with pytest.raises(SliceError, match="ask again when it has") as found:
        service_of(record).slice(given)
    assert found.value.status == 409


def test_the_version_of_probed_steps_can_be_asked_for():
    """64 steps as text would be longer than a version may be."""
    trace = make_big_trace(1, 70, 16, 8)
    trace.meta["spec"]["probe_at"] = list(range(64))
    record = RaceRecord(state="done", traces={"a": trace}, recorded={"a": trace})
    given = {"run": record.run_id, "lane": "a", "version": record.version, "view": "frame"}
    assert decoded(service_of(record).slice(given).data)[1]["steps"] == 70
    before = record.version
    trace.meta["spec"]["probe_at"] = [3]
    assert record.version != before


def test_slices_are_those_of_the_recorded_trace():
    timed, recorded = make_big_trace(2, 4, 16, 8), make_big_trace(2, 5, 16, 8)
    record = RaceRecord(state="done", traces={"a": timed}, recorded={"a": recorded})
    given = {"run": record.run_id, "lane": "a", "version": record.version, "view": "frame"}
    assert decoded(service_of(record).slice(given).data)[1]["steps"] == 5


def test_a_slice_is_cut_once_and_without_the_runs_lock(service, asked, record, monkeypatch):
    free = []

    def cut(*given):
        free.append(record.lock.acquire(blocking=False))
        record.lock.release()
        return real(*given)

    real = registry.cut
    monkeypatch.setattr(registry, "cut", cut)
    first = service.slice(asked())
    assert service.slice(asked()) is first
    assert service.slice(asked(layer="2")) != first
    assert free == [True, True]
    assert gzip.decompress(service.slice(asked(), True).data) == first.data


def test_few_slices_are_cut_at_once(service, asked, monkeypatch):
    running, most, lock = [], [], threading.Lock()
    together, gate = threading.Event(), threading.Event()

    def cut(*given):
        with lock:
            running.append(1)
            most.append(len(running))
            if len(running) == slice_service.AT_ONCE:
                together.set()
        together.wait(20)  # the first is held until others are cut beside it
        gate.wait(0.05)
        with lock:
            running.pop()
        return b"x"

    monkeypatch.setattr(registry, "cut", cut)
    each = [asked(step_to=str(to)) for to in range(1, 7)]
    for coming in [service.threads.submit(service.slice, given) for given in each]:
        coming.result(20)
    assert (len(most), max(most)) == (6, slice_service.AT_ONCE)


def request_from(address, given):
    query = urlencode(given).encode()
    return Request({"type": "http", "method": "GET", "path": PATH, "query_string": query,
                    "headers": [], "client": (address, 1)})  # fmt: skip


def test_the_requests_of_one_address_do_not_delay_those_of_another(service, asked, monkeypatch):
    cut, begin = [], threading.Event()

    def note(trace, fields, *given):
        begin.wait(20)
        cut.append(fields.whole("step_to", 0, 99))
        return b"x"

    async def ask() -> None:
        tasks = []
        for address, step in [*(("me", n) for n in range(1, 13)), ("you", 20)]:
            request = request_from(address, asked(step_to=str(step)))
            tasks.append(asyncio.create_task(service.respond(request)))
        await asyncio.sleep(0)  # all are in line, or wait for their place in it
        begin.set()
        await asyncio.gather(*tasks)

    monkeypatch.setattr(registry, "cut", note)
    with ThreadPoolExecutor(1) as pool:  # a loop may run in this thread
        pool.submit(asyncio.run, ask()).result()
    assert len(cut) == 13
    assert cut.index(20) <= slice_service.OF_AN_ADDRESS + slice_service.AT_ONCE


@pytest.mark.parametrize("request_", requests(3, 20, 90), ids=str)
def test_what_the_measurement_asks_for_is_answered(service, record, request_):
    given = {"run": record.run_id, "lane": "a", "version": record.version}
    arrays, facts = decoded(service.slice(given | {k: str(v) for k, v in request_.items()}).data)
    assert arrays
    assert all(array.size for name, array in arrays.items() if name != "differs")
    assert {"rows", "columns", "by"} <= set(facts) or "cells" not in arrays


def test_the_cache_stays_below_its_bound_and_drops_the_oldest():
    cache = SliceCache(100)
    for key in "abcd":
        cache.put(key, Body(b"x" * 25))
    assert cache.get("a") is not None
    cache.put("e", Body(b"x" * 25))
    assert [key for key in "abcde" if cache.get(key)] == ["a", "c", "d", "e"]
    assert cache.nbytes == 100
    cache.put("a", Body(b"x" * 5))
    assert cache.nbytes == 80
    cache.put("f", Body(b"x" * 26))
    assert (cache.get("f"), cache.nbytes) == (None, 80)
