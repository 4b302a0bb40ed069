"""The folder of uploads when it is full: files that nobody read soon make room for others."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest
from starlette.exceptions import HTTPException

from inspector.server import gate, upload_folder
from inspector.server.upload_folder import EXPORTS, OWN_NAME, UploadFolder


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


def test_an_upload_that_stalls_is_ended_before_its_file_is_removed_as_an_old_one(monkeypatch):
    assert gate.STALLED_S < upload_folder.CROWDED_S
    monkeypatch.setattr(gate, "STALLED_S", 0.001)

    async def stalled():
        await gate._limited(asyncio.Event().wait, 9, int, 9)()

    with ThreadPoolExecutor(1) as pool, pytest.raises(HTTPException) as refusal:
        pool.submit(asyncio.run, stalled()).result()
    assert (refusal.value.status_code, refusal.value.detail) == (408, gate.STALLED)
