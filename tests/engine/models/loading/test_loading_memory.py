"""Loading: no second copy in memory, progress in bytes, number formats, digests of large files."""

import hashlib
import json
import os
import subprocess
import sys
from itertools import pairwise

import pytest
import torch
from safetensors.torch import save_file

from engine.models.loading import checkpoint
from engine.models.loading.checkpoint import Checkpoint
from engine.models.loading.families import adapter_of
from engine.models.loading.placement import Placing
from tests.engine.models.loading.test_adapters_from_files import layout, tensors
from tests.engine.models.loading.test_placement import drained
from tests.support.micro import ROOT, TINY, configure, write_checkpoint

CPU = torch.device("cpu")
WIDE = {"layers": 12, "d_model": 512, "n_heads": 8, "n_kv_heads": 8, "mlp_hidden_size": 2048}
LAYER = 4 * (4 * 512**2 + 3 * 512 * 2048)  # bytes of one of its layers
PEAKS = """
import json, sys
from pathlib import Path
import torch
from safetensors.torch import load_file
from engine.core.device import peak_memory, reset_peak_memory
from engine.models.llada import LladaAdapter
from engine.models.loading.checkpoint import Checkpoint

CPU = torch.device("cpu")

def load(folder):
    return LladaAdapter.from_checkpoint(Checkpoint(folder), torch.float32, CPU)

def after_a_copy(folder):
    held = {n: t.clone() for n, t in load_file(folder / "model.safetensors").items()}
    return held, load(folder)

load(Path(sys.argv[1]))
peaks = []
for act in (load, after_a_copy):
    reset_peak_memory(CPU)
    before = peak_memory(CPU)
    held = act(Path(sys.argv[2]))
    peaks.append(peak_memory(CPU) - before)
    del held
print(json.dumps(peaks))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the peak of a process is Linux's to tell")
def test_loading_holds_the_weights_and_no_more_than_a_layer_beside_them(tmp_path):
    folder = write_checkpoint(tmp_path / "wide", **WIDE)
    size = (folder / "model.safetensors").stat().st_size
    assert size > 200_000_000
    env = os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536", "OMP_NUM_THREADS": "1"}
    code = [sys.executable, "-c", PEAKS, str(TINY), str(folder)]
    ran = subprocess.run(code, cwd=ROOT, capture_output=True, text=True, env=env)
    assert ran.returncode == 0, ran.stderr
    peak, copied = json.loads(ran.stdout)
    assert 0.9 * size < peak < size + LAYER
    assert copied > 1.8 * size


@pytest.fixture(params=["llada", "dream"])
def folder(request, tmp_path):
    return write_checkpoint(tmp_path / "micro", kind=request.param)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_weights_take_the_format_that_is_asked_for(folder, dtype):
    adapter = adapter_of(folder).from_checkpoint(Checkpoint(folder), dtype, CPU)
    assert {p.dtype for p in adapter.parameters()} == {dtype}
    assert not any(p.requires_grad for p in adapter.parameters())
    exact = adapter_of(folder).from_checkpoint(Checkpoint(folder), torch.float64, CPU)
    pairs = zip(adapter.parameters(), exact.parameters(), strict=True)
    assert all(torch.equal(a, b.to(dtype)) for a, b in pairs)


def test_progress_grows_to_the_bytes_of_the_tensors(folder):
    files = Checkpoint(folder)
    loading = adapter_of(folder).load(files, torch.float64, Placing(CPU))
    _, told = drained(loading)
    assert len(told) == len(files.shapes)
    assert all(a.done < b.done for a, b in pairwise(told))
    assert {p.total for p in told} == {sum(map(files.nbytes, files.shapes))}
    assert told[-1].done == told[-1].total


def test_spare_rows_are_not_read(tmp_path):
    folder = write_checkpoint(tmp_path / "micro")
    plain = sum(map(Checkpoint(folder).nbytes, Checkpoint(folder).shapes))

    def pad(found):
        for name in (layout(folder).embedding, layout(folder).head):
            found[name] = torch.cat((found[name], torch.full((8, 32), 9.0)))

    rows = json.loads((folder / "config.json").read_text())["vocab_size"]
    tensors(folder, pad)
    configure(folder, embedding_size=rows + 8)
    _, told = drained(adapter_of(folder).load(Checkpoint(folder), torch.float32, Placing(CPU)))
    assert told[-1].total == plain


def test_the_digest_of_a_small_file_is_of_all_its_bytes(folder):
    data = (folder / "model.safetensors").read_bytes()
    assert Checkpoint(folder).digest() == hashlib.sha256(data).hexdigest()[:16]
    (folder / "model.safetensors").write_bytes(data[:-1] + b"\x55")
    assert Checkpoint(folder).digest() != hashlib.sha256(data).hexdigest()[:16]


def test_the_embedded_models_keep_their_digests():
    data = (TINY / "model.safetensors").read_bytes()
    assert Checkpoint(TINY).digest() == hashlib.sha256(data).hexdigest()[:16]


SIZE = 3_000_000_000  # bytes of a sparse file: it takes up next to nothing


@pytest.fixture
def large(tmp_path):
    """A folder with one tensor of zeros that is too large to be digested whole."""
    folder = tmp_path / "large"
    folder.mkdir()
    path = folder / "model.safetensors"
    save_file({"a": torch.zeros(4)}, path)
    head = json.dumps({"a": {"dtype": "F32", "shape": [SIZE // 4], "data_offsets": [0, SIZE]}})
    text = head.encode().ljust(128)
    path.write_bytes(len(text).to_bytes(8, "little") + text)
    os.truncate(path, 8 + len(text) + SIZE)
    return folder


def poke(folder, place, byte=b"\x01"):
    with (folder / "model.safetensors").open("r+b") as file:
        file.seek(place)
        file.write(byte)


@pytest.mark.parametrize("share", [0.0, 1 / 63, 31 / 63, 1.0])
def test_a_large_file_is_sampled_from_its_start_to_its_end(large, share):
    before, size = Checkpoint(large).digest(), (large / "model.safetensors").stat().st_size
    assert before == Checkpoint(large).digest()
    poke(large, int((size - checkpoint.SAMPLE) * share) + 500_000)
    assert Checkpoint(large).digest() != before


def test_what_lies_between_the_samples_is_not_seen(large):
    before, size = Checkpoint(large).digest(), (large / "model.safetensors").stat().st_size
    poke(large, int((size - checkpoint.SAMPLE) * 0.5 / 63) + 500_000)
    assert Checkpoint(large).digest() == before


def test_size_and_header_count(large):
    path = large / "model.safetensors"
    before = Checkpoint(large).digest()
    head = json.dumps({"b": {"dtype": "F32", "shape": [SIZE // 4], "data_offsets": [0, SIZE]}})
    poke(large, 8, head.encode().ljust(128))
    renamed = Checkpoint(large).digest()
    head = json.dumps(
        {"b": {"dtype": "F32", "shape": [SIZE // 4 + 1], "data_offsets": [0, SIZE + 4]}}
    )
    poke(large, 8, head.encode().ljust(128))
    os.truncate(path, 8 + 128 + SIZE + 4)
    assert len({before, renamed, Checkpoint(large).digest()}) == 3


def test_a_large_tensor_is_read_in_runs_of_rows(large):
    runs = [len(run) for run in Checkpoint(large).read("a", CPU, 20_000_000)]
    whole = checkpoint.CHUNK // 4
    assert runs == [whole, whole, 20_000_000 - 2 * whole]
