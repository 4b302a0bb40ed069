"""The gate before Gradio: what passes, what is refused and what is named."""

import asyncio
import json
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import gradio as gr
import pytest
from gradio.routes import App
from starlette.middleware import Middleware
from starlette.testclient import TestClient

from inspector.handlers import uploads
from inspector.handlers.uploads import UnreadUploads
from inspector.server import gate, upload_folder
from inspector.server.gate import BLOCKED_PATHS, Gate
from inspector.server.request_checks import MAX_DEPTH, MAX_FILES
from inspector.server.upload_folder import UploadFolder, clean

JSON = {"Content-Type": "application/json"}


def double(x):
    return 2 * x


def result_of(work):
    """The result of a coroutine, in another thread: browser tests leave a loop running in this."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A small page behind the gate: its client, its upload folder and its unread uploads."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRADIO_TEMP_DIR", str(folder))
        patch.setattr(gate, "FORM_BYTES", 0)
        with gr.Blocks(analytics_enabled=False) as page:
            given = gr.Number()
            file = gr.File()
            given.change(double, given, given, queue=False)
            file.change(lambda path: None, file, None, queue=False)
            gr.HTML("", server_functions=[double])
        page.max_file_size = None
        unread = UnreadUploads()
        checked = Middleware(Gate, trace_bytes=5_000, uploads=unread)
        with TestClient(App.create_app(page, app_kwargs={"middleware": [checked]})) as client:
            yield client, folder, unread


@pytest.fixture
def client(served):
    return served[0]


@pytest.fixture
def unread(served):
    return served[2]


def call_of(client, **changes):
    """A call of the HTML component's function; ids depend on the pages made before."""
    parts = client.get("/config").json()["components"]
    (mine,) = [part["id"] for part in parts if part["type"] == "html"]
    return {"data": 3, "component_id": mine, "fn_name": "double", "session_hash": "me"} | changes


def right(**changes):
    return {"data": [2], "fn_index": 0, "session_hash": "me"} | changes


def test_what_a_page_sends_passes(client):
    assert client.post("/gradio_api/run/predict", json=right()).json()["data"] == [4]
    answer = client.post("/gradio_api/component_server", json=call_of(client))
    assert answer.json() == 6
    assert client.get("/config").status_code == 200


@pytest.mark.parametrize(
    ("document", "said"),
    [({"x": 1, "": 2}, "body: '' is unknown; the values are x"), ({}, "x: missing")],
)
def test_values_by_name_are_those_of_the_function(client, document, said):
    answer = client.post("/gradio_api/call/v2/double", json=document)
    assert (answer.status_code, answer.json()["detail"]) == (422, said)


WRONG = [
    ({"data": []}, "data: expected a list of 1"),
    ({"data": "x"}, "data: expected a list of 1"),
    ({"fn_index": 9}, "fn_index: there is no such function"),
    ({"fn_index": "0"}, "fn_index: there is no such function"),
    ({"fn_index": None}, "fn_index: there is no such function"),
    ({"session_hash": []}, "session_hash: expected"),
    ({"session_hash": "a" * 65}, "session_hash: expected"),
    ({"session_hash": "a/../b"}, "session_hash: expected"),
    ({"batched": True}, "batched: not supported"),
    ({"data": ["\ud800"]}, "body: it has a surrogate"),
    ({"data": [[[]] * 20_000]}, "body: more than 20000 values"),
]


@pytest.mark.parametrize(("change", "said"), WRONG)
@pytest.mark.parametrize("route", ["run/predict", "queue/join"])
def test_a_wrong_event_is_named(client, route, change, said):
    body = json.dumps(right(**change))
    answer = client.post(f"/gradio_api/{route}", content=body, headers=JSON)
    assert answer.status_code in (400, 422)
    assert answer.json()["detail"].startswith(said)


@pytest.mark.parametrize(
    ("body", "said"),
    [(b"", "body: not a JSON"), (b"{", "body: not a JSON"), (b"[]", "body: expected an object"),
     (b"\xff", "body: not a JSON"), (b'{"data":[NaN]}', "body: not a JSON"),
     (b'{"a":' * 100_000, "body: nested"), (b"[" * 40 + b"]" * 40, "body: expected an object"),
     (b'{"a":' + b"[" * MAX_DEPTH + b"1" + b"]" * MAX_DEPTH + b"}", "body: nested")],
)  # fmt: skip
def test_a_body_that_is_no_document(client, body, said):
    answer = client.post("/gradio_api/run/predict", content=body, headers=JSON)
    assert 400 <= answer.status_code < 500
    assert answer.json()["detail"].startswith(said)


@pytest.mark.parametrize("change", [{"component_id": 10**6}, {"fn_name": "value"}, {"fn_name": 3}])
def test_a_wrong_call_of_a_component_is_named(client, change):
    call = call_of(client, **change)
    answer = client.post("/gradio_api/component_server", json=call)
    assert answer.json()["detail"].startswith(f"{next(iter(change))}: ")


def pieces(size):
    """A body of which the request does not say how long it is."""
    for _ in range(size // 1_000 + 1):
        yield b" " * 1_000


def test_a_body_is_bounded_before_it_is_read(client):
    large = right(data=["x" * gate.MAX_JSON_BYTES])
    assert client.post("/gradio_api/run/predict", json=large).status_code == 413
    answer = client.post(
        "/gradio_api/run/predict", content=pieces(gate.MAX_JSON_BYTES), headers=JSON
    )
    assert (answer.status_code, answer.json()["detail"][:5]) == (413, "body:")
    said = JSON | {"Content-Length": "-1"}
    assert client.post("/gradio_api/run/predict", content=b"{}", headers=said).status_code == 413


def test_an_upload_is_bounded_as_it_comes(client):
    small, large = {"files": ("a.npz", b"x" * 5_000)}, {"files": ("a.npz", b"x" * 20_000)}
    assert client.post("/gradio_api/upload", files=small).status_code == 200
    assert client.post("/gradio_api/upload", files=large).status_code == 413
    kind = {"Content-Type": "multipart/form-data; boundary=b"}
    answer = client.post("/gradio_api/upload", content=pieces(20_000), headers=kind)
    assert answer.status_code == 413
    for route, given in (("component_server", {"files": small}), ("upload", {"json": {}})):
        answer = client.post("/gradio_api/" + route, **given)
        assert answer.status_code == 415
        assert answer.json()["detail"].startswith("Content-Type: expected")
    answer = client.post("/gradio_api/upload", files={"files": ("", b"x")})
    assert (answer.status_code, answer.json()["detail"][:7]) == (422, "upload:")


def test_what_a_cut_upload_left_is_cleared_and_a_full_folder_takes_none(served, monkeypatch):
    client, folder, _ = served
    monkeypatch.setattr(upload_folder, "REMEMBERED_S", 0)
    stale, fresh = folder / "tmpstale", folder / "tmpfresh"
    for path in (stale, fresh):
        path.write_bytes(b"x")
    os.utime(stale, (0, time.time() - upload_folder.STALE_S - 9))
    file = {"files": ("a.npz", b"x" * 5_000)}
    assert client.post("/gradio_api/upload", files=file).status_code == 200
    assert (stale.exists(), fresh.exists()) == (False, True)
    fresh.write_bytes(bytes(21_000))
    assert client.post("/gradio_api/upload", files=file).status_code == 200
    monkeypatch.setattr(gate, "MIN_FOLDER_BYTES", 1_000)
    assert client.post("/gradio_api/upload", files=file).status_code == 413


def test_stale_files_of_any_depth_go_and_the_folders_that_they_leave(tmp_path):
    outside, inside = tmp_path / "outside", tmp_path / "uploads"
    for path in (outside / "a", inside / "hash" / "a.npz", inside / "b" / "c" / "d"):
        path.parent.mkdir(parents=True)
        path.write_bytes(b"xyz")
    (inside / "hash" / "link").symlink_to(outside)
    (inside / "other").symlink_to(outside)
    later = time.time() + upload_folder.STALE_S + 9
    assert clean(inside, time.time(), own=True) > 6
    assert clean(inside, later, own=False) > 6
    assert (inside / "hash" / "a.npz").exists()
    clean(inside, later, own=True)
    assert [path for path in inside.rglob("*") if path.is_symlink() or path.is_file()] == []
    assert not (inside / "hash").exists()
    assert not (inside / "b" / "c").exists()
    assert (outside / "a").read_bytes() == b"xyz"


def test_old_files_of_a_folder_that_somebody_else_chose_are_theirs(tmp_path, monkeypatch):
    monkeypatch.setenv("GRADIO_TEMP_DIR", str(tmp_path / "chosen"))
    monkeypatch.setattr(upload_folder, "STALE_S", -1)
    for name, stays in (("chosen", True), (upload_folder.OWN_NAME, False)):
        file = tmp_path / name / "notes" / "mine.txt"
        file.parent.mkdir(parents=True)
        file.write_bytes(b"xyz")
        result_of(UploadFolder().held(tmp_path / name, 10**9))
        assert file.exists() == stays


def test_a_folder_is_counted_beside_the_other_requests_and_not_for_every_upload(
    tmp_path, monkeypatch
):
    threads, loops = [], []

    def counted(*given):
        threads.append(threading.get_ident())
        return 100

    monkeypatch.setattr(upload_folder, "clean", counted)
    folder = UploadFolder()

    async def three() -> list[int]:
        loops.append(threading.get_ident())
        first = await asyncio.gather(*(folder.held(tmp_path, 10**9) for _ in range(2)))
        folder.add(20)
        return [*first, await folder.held(tmp_path, 10**9)]

    assert result_of(three()) == [100, 100, 120]
    assert len(threads) == 1
    assert threads != loops


def test_what_arrived_since_the_count_is_refused_with_the_rest(served, monkeypatch):
    client, *_ = served
    monkeypatch.setattr(gate, "MIN_FOLDER_BYTES", 1_000)
    monkeypatch.setattr(upload_folder, "REMEMBERED_S", 600)
    monkeypatch.setattr(upload_folder, "clean", lambda *given: 0)
    answers = [
        client.post("/gradio_api/upload", files={"files": (f"{n}.npz", b"x" * 8_000)})
        for n in range(9)
    ]
    assert answers[-1].json()["detail"] == gate.NO_SPACE


def test_a_folder_that_is_full_before_the_end_of_an_upload_cuts_it_off(served, monkeypatch):
    client, *_ = served
    monkeypatch.setattr(gate, "MIN_FOLDER_BYTES", 1_000)  # the limit is that of two uploads
    monkeypatch.setattr(upload_folder, "REMEMBERED_S", 0)
    monkeypatch.setattr(upload_folder, "clean", lambda *given: 15_000)
    answer = client.post("/gradio_api/upload", files={"files": ("late.npz", b"x" * 8_000)})
    assert (answer.status_code, answer.json()["detail"]) == (413, gate.NO_SPACE)


def test_visitors_who_upload_the_same_file_at_once_all_have_it_read(client, unread):
    same = {"files": ("same.npz", b"same")}
    mine, other = (client.post("/gradio_api/upload", files=same).json() for _ in range(2))
    assert mine == other
    path = Path(mine[0])
    for upload in (mine, other):
        given = {"path": upload[0], "meta": {"_type": "gradio.FileData"}}
        answer = client.post("/gradio_api/run/predict", json=right(fn_index=1, data=[given]))
        assert answer.status_code == 200
        assert unread.read(path, 100) == b"same"
    assert not path.exists()


def test_an_upload_that_nobody_reads_is_not_waited_for(client, unread, monkeypatch):
    same = {"files": ("lost.npz", b"lost")}
    (path,) = client.post("/gradio_api/upload", files=same).json()
    monkeypatch.setattr(uploads, "FORGOTTEN_S", 0)
    assert client.post("/gradio_api/upload", files=same).json() == [path]
    unread.read(Path(path), 100)
    assert not Path(path).exists()


def test_only_so_many_uploads_of_a_file_are_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(uploads, "MOST_UPLOADS", 2)
    unread, path = UnreadUploads(), tmp_path / "a"
    path.write_bytes(b"x")
    unread.add([path] * 5)
    unread.read(path, 9)
    assert path.exists()
    unread.read(path, 9)
    assert not path.exists()


def test_only_so_many_files_are_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(uploads, "MOST_FILES", 2)
    unread, paths = UnreadUploads(), [tmp_path / name for name in "abc"]
    for path in paths:
        path.write_bytes(b"x")
        unread.add([path, path])
    for path in paths:
        unread.read(path, 9)
    assert [path.exists() for path in paths] == [False, True, True]


def test_the_paths_of_many_files_are_read_from_a_packed_answer(client, unread):
    files = [("files", (f"{n:060}.npz", b"x")) for n in range(40)]
    packed = {"Accept-Encoding": "br, gzip"}
    paths = client.post("/gradio_api/upload", files=files, headers=packed).json()
    assert client.post("/gradio_api/upload", files=files, headers=packed).json() == paths
    for path in map(Path, paths):
        unread.read(path, 100)
        assert path.exists()
        unread.read(path, 100)
        assert not path.exists()


@pytest.mark.parametrize("meta", [{"_type": "gradio.FileData"}, {}])
@pytest.mark.parametrize("path", ["/etc/passwd", "http://127.0.0.1/x", "a\0b", "..", None, 3])
def test_only_uploaded_files_are_taken(client, path, meta):
    given = {"path": path, "meta": meta}
    answer = client.post("/gradio_api/run/predict", json=right(fn_index=1, data=[given]))
    assert answer.status_code == 422
    assert answer.json()["detail"].startswith("data: the file was not uploaded to this app")


def test_a_path_of_very_many_parts_is_refused_at_once(client):
    given, began = {"path": "a/" * 200_000, "meta": {}}, time.monotonic()
    answer = client.post("/gradio_api/run/predict", json=right(fn_index=1, data=[given]))
    assert answer.status_code == 422
    assert time.monotonic() - began < 3


def test_more_files_than_anybody_chooses_are_refused(client):
    (path,) = client.post("/gradio_api/upload", files={"files": ("a.npz", b"x")}).json()
    given = [{"path": path, "meta": {"_type": "gradio.FileData"}}] * (MAX_FILES + 1)
    answer = client.post("/gradio_api/run/predict", json=right(fn_index=1, data=[given]))
    assert "more than 100 files" in answer.json()["detail"]


@pytest.mark.parametrize("value", ["dual", 3, [], {}, {"path": 3}])
def test_what_is_no_file_at_all_is_named(client, value):
    answer = client.post("/gradio_api/run/predict", json=right(fn_index=1, data=[value]))
    assert answer.status_code == 422
    assert answer.json()["detail"].startswith("data: expected FileData, as")


def test_an_uploaded_file_is_taken_but_no_link_out_of_the_folder(served, tmp_path):
    client, folder, _ = served
    (path,) = client.post("/gradio_api/upload", files={"files": ("../a.npz", b"x")}).json()
    secret = tmp_path / "secret"
    secret.write_text("x")
    (folder / "link").symlink_to(secret)
    for name, status in ((path, 200), (str(folder / "link"), 422)):
        given = {"path": name, "meta": {"_type": "gradio.FileData"}}
        answer = client.post("/gradio_api/run/predict", json=right(fn_index=1, data=[given]))
        assert answer.status_code == status


OPEN = (
    "/", "/config", "/static/", "/assets/", "/svelte/", "/favicon.ico", "/theme.css", "/robots.txt",
    "/pwa_icon", "/pwa_icon/", "/manifest.json", "/openapi.json",
    *("/gradio_api/" + name for name in (
        "user", "login_check", "token", "app_id", "runs", "info", "openapi.json", "file=", "reset",
        "heartbeat/", "run/", "api/", "call/", "queue/", "cancel", "component_server",
        "upload", "upload_progress", "startup-events", "theme.css",
    )),
)  # fmt: skip


def routes_of(routes):
    for route in routes:
        inner = getattr(route, "original_router", None)
        yield from routes_of(inner.routes) if inner else [route.path]


def test_every_route_of_gradio_is_known(client):
    """A route that a new Gradio brings is either shut or added here on purpose."""
    found = [path for path in routes_of(client.app.routes) if not BLOCKED_PATHS.match(path)]
    assert len(found) > 30
    folders = tuple(path for path in OPEN if path.endswith(("/", "=")) and path != "/")
    known = {path.rstrip("/") for path in OPEN}
    assert [p for p in found if p.rstrip("/") not in known and not p.startswith(folders)] == []


@pytest.mark.parametrize(
    "path", ["/monitoring", "/gradio_api/proxy=http://a", "/gradio_api/file=http://a/b",
             "/gradio_api/vibe-code", "/gradio_api/deep_link", "/GRADIO_API/dev/reload"],
)  # fmt: skip
def test_what_the_app_has_no_use_for_is_shut(client, path):
    for own, root in ((client, ""), (TestClient(client.app, root_path="/sub"), "/sub")):
        answer = own.get(root + path, params={"session_hash": "me"})
        assert (answer.status_code, answer.json()["detail"][:5]) == (404, "path:")


def test_odd_ranges_and_sessions_are_refused(client):
    assert client.get("/config", headers={"Range": "bytes=1-2-3"}).status_code == 416
    assert client.get("/gradio_api/heartbeat/a%00b").status_code == 422
    for query in ("session_hash=../x", "session_hash=me&session_hash=../x"):
        assert client.get(f"/gradio_api/queue/data?{query}").status_code == 422
