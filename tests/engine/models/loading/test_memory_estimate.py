"""Memory estimates against measured memory; errors with remedies that work."""

import ctypes
import re

import pytest
import torch

from engine.cache.base import RunInfo
from engine.cache.store import ActivationStore, Site
from engine.catalog import policies
from engine.core.device import peak_memory, reset_peak_memory
from engine.models.base import ModelAdapter
from engine.models.dream import DreamAdapter
from engine.models.llada import LladaAdapter
from engine.models.loading import memory_estimate
from engine.models.loading.memory_estimate import InsufficientMemoryError, check_fits, fits
from engine.models.loading.registry import DREAM_7B, LLADA_8B, MMADA_8B
from engine.models.mmada import MmadaAdapter
from tests.support.micro import make_info, make_model, make_spec, run

F32, BF16, F64 = torch.float32, torch.bfloat16, torch.float64
LLADA, DREAM = LladaAdapter.read_info(LLADA_8B), DreamAdapter.read_info(DREAM_7B)
MMADA = MmadaAdapter.read_info(MMADA_8B)
GB = 10**9


@pytest.mark.parametrize(
    ("info", "count"),
    [(LLADA, 8_015_581_184), (DREAM, 7_615_616_512), (MMADA, 8_082_690_048)],
    ids=["llada", "dream", "mmada"],
)
def test_weights_of_the_published_models(info, count):
    assert memory_estimate.parameters(info) == count
    assert memory_estimate.weights_bytes(info, BF16) == 2 * count
    assert memory_estimate.weights_bytes(info, F32) == 4 * count


@pytest.mark.parametrize(
    "changes", [{}, {"kv": 2}, {"shift": 1}, {"tied": True}, {"layers": 1, "ffn": 7}], ids=str
)
def test_parameters_equal_those_of_the_adapter(changes):
    info = make_info(**changes)
    adapter = ModelAdapter(info)
    assert memory_estimate.parameters(info) == sum(p.numel() for p in adapter.parameters())
    blocks = [sum(p.numel() for p in block.parameters()) for block in adapter.blocks]
    layers = range(info.layers)
    assert blocks == [memory_estimate.block_parameters(info, layer) for layer in layers]


@pytest.mark.parametrize("cache", policies())
def test_store_bytes_equal_the_allocated_bytes(cache):
    info = make_info(kv=2)
    sites = policies()[cache]().sites(RunInfo(info, 2, 6, 16, 4))
    held = ActivationStore(info, sites, 2, 22, F64, torch.device("cpu")).nbytes()
    assert memory_estimate.store_bytes(info, F64, 22, 2, sites) == held
    assert memory_estimate.store_bytes(info, F64, 23, 2, sites) > held or not sites


@pytest.mark.parametrize(
    ("changes", "rows"),
    [({"ffn": 1024, "d_model": 256, "vocab_size": 64, "mask_id": 63}, 64),
     ({"ffn": 64, "d_model": 32, "vocab_size": 30_000, "mask_id": 39}, 256)],
    ids=["layers", "logits"],
)  # fmt: skip
def test_measured_memory_of_a_run_is_near_the_estimate(changes, rows):
    """What earlier tests freed goes back to the system, or else the run would take less from it."""
    model = make_model(layers=2, max_length=8192, **changes)
    prompt = [[7] * (2048 if rows == 64 else 64)]
    spec = make_spec(gen_length=rows, block_length=rows, steps=1, cache="prefix", temperature=1.0)
    run(model, make_spec(), [[7] * 8])
    ctypes.CDLL(None).malloc_trim(0)
    reset_peak_memory(model.device)
    before = peak_memory(model.device)
    run(model, spec, prompt)
    taken = peak_memory(model.device) - before
    length = len(prompt[0]) + rows
    sites = (Site("k"), Site("v"))
    expected = memory_estimate.run_bytes(model.info, F64, length, 1, sites, rows)
    assert 0.5 * expected < taken < 1.2 * expected


def test_longer_runs_and_larger_batches_take_more():
    def of(length, batch):
        return memory_estimate.run_bytes(LLADA, BF16, length, batch, (Site("k"), Site("v")), 32)

    assert of(512, 1) < of(1024, 1) < of(1024, 2) < 4 * GB


def test_free_bytes_of_this_machine():
    free = memory_estimate.free_bytes()
    assert list(free)[-1] == "cpu"
    assert 10**6 < free["cpu"] < 10**14
    assert len(free) == 1 + torch.cuda.device_count()


def test_memory_that_the_allocator_of_a_gpu_keeps_counts_as_free(monkeypatch):
    """A run leaves it there, and the plan of the next one is made before it is given back."""
    sizes = {"reserved": 900, "active": 500, "inactive_split": 100}
    stats = {f"{name}_bytes.all.current": size for name, size in sizes.items()}
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda gpu: (1000, 4000))
    monkeypatch.setattr(torch.cuda, "memory_stats", lambda gpu: {} if gpu else stats)
    free = memory_estimate.free_bytes()
    assert (free["cuda:0"], free["cuda:1"]) == (1300, 1000)


def test_the_memory_limit_of_a_container_counts(tmp_path):
    assert memory_estimate.cgroup_free_bytes(tmp_path) > 10**15
    for name, text in (("max", "1000"), ("current", "700"), ("stat", "anon 5\ninactive_file 50\n")):
        (tmp_path / f"memory.{name}").write_text(text)
    assert memory_estimate.cgroup_free_bytes(tmp_path) == 350
    (tmp_path / "memory.max").write_text("max\n")
    assert memory_estimate.cgroup_free_bytes(tmp_path) > 10**15


CASES = {
    "dtype": (F32, "cpu", 0, {"cpu": 20 * GB}, "set dtype to bfloat16"),
    "disk": (BF16, "cpu", 0, {"cpu": 10 * GB}, "set device to auto"),
    "host": (BF16, "cuda", 0, {"cuda:0": 8 * GB, "cpu": 64 * GB}, "set device to cpu"),
    "gpu": (BF16, "cuda:0", 0, {"cuda:0": 8 * GB, "cuda:1": 40 * GB, "cpu": GB},
            "set device to cuda:1"),
    "shorter": (BF16, "cuda", 9 * GB, {"cuda:0": 24 * GB, "cpu": GB}, "shorten the prompt"),
    "smaller": (BF16, "auto", 0, {"cuda:0": GB, "cpu": GB}, "; choose a smaller model"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_remedies_of_the_error_work(case):
    dtype, device, spare, free, remedy = CASES[case]
    with pytest.raises(
        InsufficientMemoryError, match=r"^model: its 8\.02 billion parameters .* GB are free"
    ) as caught:
        check_fits(LLADA, dtype, device, spare, free)
    assert remedy in str(caught.value)
    text = str(caught.value)
    if named := re.search(r"set dtype to (\w+)", text):
        assert fits(LLADA, getattr(torch, named[1]), device, spare, free)
    if named := re.search(r"set device to ([\w:]+)", text):
        assert fits(LLADA, dtype, named[1], spare, free)
    if "shorten" in text:
        assert fits(LLADA, dtype, device, 0, free)
    assert not fits(LLADA, dtype, device, spare, free)


def test_remedies_that_would_not_work_are_omitted():
    with pytest.raises(InsufficientMemoryError) as caught:
        check_fits(LLADA, F32, "auto", 0, {"cpu": GB // 2})
    assert "dtype to" not in str(caught.value)
    assert "device to" not in str(caught.value)
    assert "shorten" not in str(caught.value)


def test_models_that_fit_raise_no_error():
    check_fits(LLADA, BF16, "cpu", GB, {"cpu": 18 * GB})
    check_fits(LLADA, BF16, "auto", GB, {"cpu": 3 * GB})
    check_fits(make_info(), F64, "cpu")


def test_an_unknown_device_is_named():
    with pytest.raises(ValueError, match=r"device: 'cuda' is not available; choose from cpu, auto"):
        check_fits(LLADA, BF16, "cuda", 0, {"cpu": GB})
