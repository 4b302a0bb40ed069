"""The GPU kernels round where torch's operations do.

Without a GPU they are interpreted if Triton is installed and TRITON_INTERPRET=1 is set, in float16
alone: the interpreter does not round to bfloat16.
"""

import os
from importlib import import_module
from importlib.util import find_spec

import pytest
import torch
import torch.nn.functional as F

from engine.cache.base import drift
from engine.models.kernels.choice import SETTING
from engine.models.kernels.fused import fused_kernels
from engine.models.kernels.linear import gated
from engine.models.ops import RMSNorm, Rotary

GPU = torch.cuda.is_available()
DEVICE = torch.device("cuda" if GPU else "cpu")
HALF = (torch.float16, torch.bfloat16) if GPU else (torch.float16,)
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
pytestmark = pytest.mark.skipif(
    find_spec("triton") is None or not (GPU or INTERPRETED), reason="needs Triton and a GPU"
)


@pytest.fixture(scope="module")
def kernels():
    return import_module("engine.models.kernels.triton_kernels")


def drawn(*shape, seed=1, dtype=torch.float16):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).mul_(3).to(dtype)


def assert_rounded_alike(found, expected):
    """Nearly all numbers are equal, and none differs by more than the last place."""
    found, expected = found.cpu(), expected.cpu()
    assert found.shape == expected.shape
    assert found.dtype == expected.dtype
    eps = torch.finfo(expected.dtype).eps
    torch.testing.assert_close(found, expected, rtol=2 * eps, atol=eps / 8)
    assert (found == expected).double().mean() > 0.99


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("shape", [(1, 3, 128), (2, 5, 96), (1, 4, 3, 32)])
def test_the_norm_is_cast_before_it_is_scaled(kernels, shape, dtype):
    norm = RMSNorm(shape[-1], 1e-5).to(dtype)
    norm.weight.data.copy_(drawn(shape[-1], seed=2))
    x = drawn(*shape, dtype=dtype)
    found = kernels.rms_norm(x.to(DEVICE), norm.weight.detach().to(DEVICE), norm.eps)
    assert_rounded_alike(found, norm(x).detach())


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("heads", [1, 3, 8])
@pytest.mark.parametrize("batch", [1, 2])
def test_heads_rotate_by_their_positions(kernels, batch, heads, dtype):
    """Heads are part of a wider product; positions are a range or an index of each sequence."""
    rotary = Rotary(64, 16, 1e4, dtype, torch.device("cpu"))
    x = drawn(batch, 7, heads + 2, 16, dtype=dtype)[:, :, :heads]
    index = torch.stack([torch.randperm(64)[:7].sort().values for _ in range(batch)])
    for rows in (slice(5, 12), index):
        cos, sin = rotary.angles(rows)
        moved = [part.to(DEVICE) for part in (x, cos, sin)]
        assert_rounded_alike(kernels.rotate(*moved), rotary(x, cos, sin))


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("inner", [48, 1024, 1500])
def test_the_gate_rounds_its_activation(kernels, inner, dtype):
    x = drawn(1, 5, 2 * inner, dtype=dtype)
    assert_rounded_alike(kernels.gate(x.to(DEVICE)), gated(x.clone()))


@pytest.mark.parametrize("dtype", HALF)
def test_drifts_are_those_of_torch(kernels, dtype):
    old = drawn(2, 6, 40, dtype=dtype)
    new = (old + drawn(2, 6, 40, seed=2) * 0.1).to(dtype)
    new[0, 3] = old[0, 3]
    least = (64 * torch.finfo(torch.float32).eps) ** 2
    found = kernels.drift(new.to(DEVICE), old.to(DEVICE), least).cpu()
    assert found[0, 3] == 0
    torch.testing.assert_close(found, drift(new, old), rtol=1e-5, atol=1e-8)
    assert (drift(new, old) > 0).sum() == 11


def test_a_swapped_rotation_is_detected(kernels):
    rotary, x = Rotary(64, 16, 1e4, torch.float16, torch.device("cpu")), drawn(1, 7, 2, 16)
    cos, sin = rotary.angles(slice(5, 12))
    found = kernels.rotate(*(part.to(DEVICE) for part in (x, cos, -sin)))
    with pytest.raises(AssertionError):
        assert_rounded_alike(found, rotary(x, cos, sin))


def test_float32_a_cpu_and_the_setting_use_torch(monkeypatch):
    assert fused_kernels(drawn(2, 3).to(DEVICE)) is None
    monkeypatch.delenv(SETTING)
    assert fused_kernels(drawn(2, 3)) is None
    assert fused_kernels(drawn(2, 3).float().to(DEVICE)) is None
    assert (fused_kernels(drawn(2, 3).to(DEVICE)) is not None) == GPU


@torch.inference_mode()
def test_the_norm_in_another_order_gives_other_numbers():
    norm, x = RMSNorm(128, 1e-5).half(), drawn(1, 33, 128)
    norm.weight.copy_(drawn(128, seed=2))
    assert not torch.equal(norm(x), F.rms_norm(x, (128,), norm.weight, norm.eps))
