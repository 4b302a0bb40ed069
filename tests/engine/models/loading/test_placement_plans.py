"""Placement plans: models that fit stay on one device, larger ones are split or are an error."""

import pytest
import torch

from engine.core.progress import run_to_end
from engine.models.base import ModelAdapter
from engine.models.llada import LladaAdapter
from engine.models.loading.checkpoint import Checkpoint
from engine.models.loading.families import folder_adapter_class
from engine.models.loading.memory_estimate import (
    InsufficientMemoryError,
    needed_bytes,
    weights_bytes,
)
from engine.models.loading.placement import Placement, plan_placement, weight_modules
from engine.models.loading.registry import LLADA_8B
from tests.engine.cache.test_forward import full
from tests.engine.models.loading.test_placement import CPU, F64, IDS, whole
from tests.support.micro import make_info, make_model


@pytest.mark.parametrize("device", ["cpu", "cuda", "cuda:1", "auto"])
def test_a_model_that_fits_is_not_split(device):
    free = {"cuda:0": 10**12, "cuda:1": 10**12, "cpu": 10**12}
    placement = plan_placement(make_model().info, F64, device, free=free)
    expected = torch.device("cuda:0" if device == "auto" else device)
    assert placement == Placement(expected)


def test_without_a_gpu_auto_is_the_host():
    assert plan_placement(make_model().info, F64, "auto", free={"cpu": 10**12}) == Placement(CPU)


@pytest.mark.parametrize("device", ["cuda", "cuda:3", "tpu"])
def test_an_unknown_device_is_named(device):
    with pytest.raises(ValueError, match=f"device: '{device}' is not available; choose from cpu"):
        plan_placement(make_model().info, F64, device, free={"cpu": 10**12})


def used(info, placement, dtype):
    """Bytes of the weights at each place of a placement."""
    total = {}
    with torch.device("meta"):
        model = ModelAdapter(info)
    for _, module, place in weight_modules(model, placement):
        size = sum(p.numel() for p in module.parameters(recurse=False)) * dtype.itemsize
        total[place] = total.get(place, 0) + size
    return total


def test_a_model_larger_than_memory_goes_to_disk_and_decodes_the_same(folder, tmp_path):
    info, spare = whole(folder).info, 1000
    free = {"cpu": needed_bytes(info, F64, "auto", spare) + weights_bytes(info, F64) // 4}
    placement = plan_placement(info, F64, "auto", tmp_path / "offload", spare, free)
    shares = used(info, placement, F64)
    assert set(shares) == {"cpu", "disk"}
    assert shares["cpu"] <= free["cpu"] - spare
    assert sum(shares.values()) == weights_bytes(info, F64)
    adapter = run_to_end(folder_adapter_class(folder).load(Checkpoint(folder), F64, placement))
    assert torch.equal(full(adapter, IDS), full(whole(folder), IDS))


def test_llada_8b_fills_the_gpus_before_the_host_and_the_disk(tmp_path):
    info = LladaAdapter.read_info(LLADA_8B)
    dtype, gb = torch.bfloat16, 10**9
    free = {"cuda:0": 8 * gb, "cuda:1": 4 * gb, "cpu": 3 * gb}
    placement = plan_placement(info, dtype, "auto", tmp_path, 2 * gb, free)
    shares = used(info, placement, dtype)
    assert placement.main == torch.device("cuda:0")
    assert set(shares) == {"cuda:0", "cuda:1", "cpu", "disk"}
    assert shares["cuda:0"] <= 6 * gb
    assert all(shares[name] <= free[name] for name in ("cuda:1", "cpu"))
    assert sum(shares.values()) == 2 * 8_015_581_184


def test_a_main_device_too_small_for_a_layer_is_an_error(tmp_path):
    with pytest.raises(
        InsufficientMemoryError, match=r"model: its 8\.02 billion parameters at bfloat16"
    ):
        plan_placement(
            LladaAdapter.read_info(LLADA_8B), torch.bfloat16, "auto", tmp_path, 0, {"cpu": 10**9}
        )


def test_a_disk_too_small_for_the_rest_is_an_error(tmp_path):
    huge = make_info(layers=8, ffn=2**40)
    free = {"cpu": 2 * needed_bytes(huge, F64, "auto")}
    with pytest.raises(
        InsufficientMemoryError, match=r"model: .* GB of it would go to .*, where .* free"
    ):
        plan_placement(huge, F64, "auto", tmp_path / "offload", 0, free)
    with pytest.raises(
        InsufficientMemoryError, match="model: part of it would go to disk, but no folder"
    ):
        plan_placement(huge, F64, "auto", None, 0, free)
