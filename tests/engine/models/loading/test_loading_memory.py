"""Loading: no second copy in memory, progress in bytes, dtypes, digests of large files."""

import ctypes
import hashlib
import json
import os
import shutil
import sys
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from huggingface_hub import constants
from safetensors.torch import load_file

from engine.core.device import peak_memory, reset_peak_memory
from engine.models.llada import LladaAdapter
from engine.models.loading import checkpoint
from engine.models.loading.checkpoint import Checkpoint
from engine.models.loading.families import folder_adapter_class
from engine.models.loading.placement import Placement
from tests.engine.models.loading.test_adapters_from_files import layout, tensors
from tests.engine.models.loading.test_placement import collect
from tests.support.micro import TINY, configure, write_checkpoint

CPU = torch.device("cpu")
WIDE = {"layers": 12, "d_model": 512, "n_heads": 8, "n_kv_heads": 8, "mlp_hidden_size": 2048}
LAYER = 4 * (4 * 512**2 + 3 * 512 * 2048)  # bytes of one of its layers


def load(folder):
    return LladaAdapter.from_checkpoint(Checkpoint(folder), torch.float32, CPU)


def load_after_a_copy(folder):
    held = {n: t.clone() for n, t in load_file(folder / "model.safetensors").items()}
    return held, load(folder)


def peak_of(act, folder):
    """The most memory that `act` takes, and none of what was freed before."""
    ctypes.CDLL(None).malloc_trim(0)
    reset_peak_memory(CPU)
    before, held = peak_memory(CPU), act(folder)
    assert held is not None
    return peak_memory(CPU) - before


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux's peak memory")
def test_peak_memory_is_the_weights_and_at_most_a_layer(tmp_path):
    folder = write_checkpoint(tmp_path / "wide", **WIDE)
    size = (folder / "model.safetensors").stat().st_size
    assert size > 200_000_000
    load(TINY)
    assert 0.9 * size < peak_of(load, folder) < size + LAYER
    assert peak_of(load_after_a_copy, folder) > 1.8 * size


@pytest.fixture(params=["llada", "dream"])
def folder(request, tmp_path):
    return write_checkpoint(tmp_path / "micro", kind=request.param)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_weights_have_the_requested_dtype(folder, dtype):
    adapter = folder_adapter_class(folder).from_checkpoint(Checkpoint(folder), dtype, CPU)
    assert {p.dtype for p in adapter.parameters()} == {dtype}
    assert not any(p.requires_grad for p in adapter.parameters())
    exact = folder_adapter_class(folder).from_checkpoint(Checkpoint(folder), torch.float64, CPU)
    pairs = zip(adapter.parameters(), exact.parameters(), strict=True)
    assert all(torch.equal(a, b.to(dtype)) for a, b in pairs)


def test_progress_ends_at_the_bytes_of_the_tensors(folder):
    files = Checkpoint(folder)
    loading = folder_adapter_class(folder).load(files, torch.float64, Placement(CPU))
    _, reports = collect(loading)
    assert len(reports) == len(files.shapes)
    assert all(a.done < b.done for a, b in pairwise(reports))
    assert {p.total for p in reports} == {sum(map(files.nbytes, files.shapes))}
    assert reports[-1].done == reports[-1].total


def test_spare_rows_are_not_read(tmp_path):
    folder = write_checkpoint(tmp_path / "micro")
    plain = sum(map(Checkpoint(folder).nbytes, Checkpoint(folder).shapes))

    def pad(found):
        for name in (layout(folder).embedding, layout(folder).head):
            found[name] = torch.cat((found[name], torch.full((8, 32), 9.0)))

    rows = json.loads((folder / "config.json").read_text())["vocab_size"]
    tensors(folder, pad)
    configure(folder, embedding_size=rows + 8)
    _, reports = collect(
        folder_adapter_class(folder).load(Checkpoint(folder), torch.float32, Placement(CPU))
    )
    assert reports[-1].total == plain


def test_the_digest_of_a_small_file_is_its_sha256(folder):
    data = (folder / "model.safetensors").read_bytes()
    assert Checkpoint(folder).digest() == hashlib.sha256(data).hexdigest()[:16]
    (folder / "model.safetensors").write_bytes(data[:-1] + b"\x55")
    assert Checkpoint(folder).digest() != hashlib.sha256(data).hexdigest()[:16]


def test_the_embedded_models_keep_their_digests():
    data = (TINY / "model.safetensors").read_bytes()
    assert Checkpoint(TINY).digest() == hashlib.sha256(data).hexdigest()[:16]


SIZE = 96 << 20  # bytes of a sparse file, which takes almost no disk space


@pytest.fixture
def large(tmp_path, monkeypatch):
    """A folder with one tensor of zeros, larger than the files that a digest always reads."""
    assert SIZE > checkpoint.SMALL_FILE_BYTES
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "large"
    folder.mkdir()
    head = json.dumps({"a": {"dtype": "F32", "shape": [SIZE // 4], "data_offsets": [0, SIZE]}})
    text = head.encode().ljust(128)
    path = folder / "model.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text)
    os.truncate(path, 8 + len(text) + SIZE)
    return folder


def write_byte(folder, position):
    with (folder / "model.safetensors").open("r+b") as file:
        file.seek(position)
        file.write(b"\x01")


def test_every_byte_of_a_large_file_changes_the_digest(large, tmp_path):
    other = Path(shutil.copytree(large, tmp_path / "other"))
    size = (large / "model.safetensors").stat().st_size
    assert Checkpoint(other).digest() == Checkpoint(large).digest()
    found = {Checkpoint(large).digest()}
    for position in (200, size // 126, size // 2, size - 1):
        write_byte(other, position)
        found.add(Checkpoint(other).digest())
    assert len(found) == 5


def test_a_large_file_is_hashed_once(large, monkeypatch):
    before = Checkpoint(large).digest()
    monkeypatch.setattr(checkpoint, "HASH_BYTES", -1)  # reading the file would use one piece
    assert list(Checkpoint(large).digest_steps()) == []
    assert Checkpoint(large).digest() == before
    (large / "model.safetensors").touch()
    assert len(list(Checkpoint(large).digest_steps())) == 1


def test_a_blob_of_the_hub_is_known_by_its_name(large, tmp_path, monkeypatch):
    before, blobs = Checkpoint(large).digest(), tmp_path / "hub" / "models--a--b" / "blobs"
    sha = hashlib.sha256((large / "model.safetensors").read_bytes()).hexdigest()
    snapshot = blobs.parent / "snapshots" / "c0ffee"
    for folder in (blobs, snapshot):
        folder.mkdir(parents=True)
    (large / "model.safetensors").rename(blobs / sha)
    (snapshot / "model.safetensors").symlink_to(blobs / sha)
    assert len(list(Checkpoint(snapshot).digest_steps())) > 1  # a folder may have any file names
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    assert list(Checkpoint(snapshot).digest_steps()) == []
    assert Checkpoint(snapshot).digest() == before


def test_a_large_tensor_is_read_in_pieces(large):
    pieces = [len(piece) for piece in Checkpoint(large).read("a", CPU, 20_000_000)]
    full = checkpoint.READ_BYTES // 4
    assert pieces == [full, full, 20_000_000 - 2 * full]


@pytest.mark.parametrize(("most", "opened"), [(10**9, 1), (-1, None)])
def test_a_file_of_small_tensors_is_not_opened_for_each(folder, most, opened, monkeypatch):
    found, opens, real = Checkpoint(folder), [], checkpoint.safe_open
    monkeypatch.setattr(checkpoint, "OPEN_BYTES", most)
    monkeypatch.setattr(
        checkpoint, "safe_open", lambda path, **how: (opens.append(path), real(path, **how))[1]
    )
    for name, expected in load_file(folder / "model.safetensors").items():
        assert torch.equal(torch.cat(list(found.read(name, CPU))), expected)
    assert len(opens) == (opened or len(found.shapes))
