"""The folder of uploads when it is full: files that nobody read soon make room for others."""

import asyncio
import os
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from starlette.exceptions import HTTPException

from inspector.handlers.uploads import UnreadUploads
from inspector.server import gate, upload_folder
from inspector.server.upload_folder import EXPORTS, OWN_NAME, UploadFolder, clean


def held(folder, most):
    """The bytes in a folder, counted in another thread: a loop may be left running in this."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, UploadFolder().held(folder, most)).result()


@pytest.mark.parametrize(("most", "stays"), [(10_000, True), (1_000, False)])
def test_files_that_nobody_read_soon_make_room_in_a_full_folder(tmp_path, monkeypatch, most, stays):
    monkeypatch.setattr(upload_folder, "CROWDED_S", -1)
    folder = tmp_path / OWN_NAME
    upload, export = folder / "hash" / "a.npz", folder / f"{EXPORTS}x" / "y" / "a.npz"
    for path in (upload, export):
        path.parent.mkdir(parents=True)
        path.write_bytes(bytes(2_000))
    assert (held(folder, most) > 0) == stays
    assert upload.exists() == stays
    assert export.exists()


def test_a_full_folder_keeps_what_an_upload_that_goes_on_may_have_written(tmp_path, monkeypatch):
    """Its file is as old as the last 8 KB of it, and as an earlier file of the same upload."""
    monkeypatch.setattr(upload_folder, "REMEMBERED_S", 0)
    folder, now, found = tmp_path / OWN_NAME, time.time(), []
    ages = {"earlier": 1_000, "own": 600, "new": 0}
    folder.mkdir()
    for name, age in ages.items():
        (folder / name).write_bytes(bytes(2_000))
        os.utime(folder / name, (now - age, now - age))
    clock = [now - 800]
    monkeypatch.setattr(
        upload_folder, "time", SimpleNamespace(time=lambda: clock[0], monotonic=time.monotonic)
    )

    async def counts():
        uploads = UploadFolder()
        with uploads.receiving():
            clock[0] = now
            found.append((await uploads.held(folder, 1_000), sorted(os.listdir(folder))))
        found.append((await uploads.held(folder, 1_000), sorted(os.listdir(folder))))

    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, counts()).result()
    assert found == [(4_000, ["new", "own"]), (2_000, ["new"])]


def test_what_an_upload_wrote_more_than_an_hour_ago_is_old(tmp_path):
    file, now = tmp_path / "tmpslow", time.time()
    file.write_bytes(b"x")
    os.utime(file, (now - 3_601, now - 3_601))
    clean(tmp_path, now, own=True, age=upload_folder.CROWDED_S, since=now - 9_000)
    assert not file.exists()


def test_an_upload_goes_on_from_the_first_to_the_last_byte_of_its_request():
    async def serve():
        going = []

        async def app(scope, receive, send):
            going.append(len(checked._folder._begun))

        checked = gate.Gate(app, 5_000, UnreadUploads())
        for route in ("upload", "info"):
            await checked._serve({"path": gate.API + route}, None, None)
        return going, checked._folder._begun

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(asyncio.run, serve()).result() == ([1, 0], [])


def test_an_upload_that_stalls_is_ended(monkeypatch):
    monkeypatch.setattr(gate, "STALLED_S", 0.001)

    async def stalled():
        await gate._limited(asyncio.Event().wait, 9, int, 9)()

    with ThreadPoolExecutor(1) as pool, pytest.raises(HTTPException) as refusal:
        pool.submit(asyncio.run, stalled()).result()
    assert (refusal.value.status_code, refusal.value.detail) == (408, gate.STALLED)
