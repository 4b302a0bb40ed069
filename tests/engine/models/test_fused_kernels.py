"""The fused kernels round where torch's operations do, and are used only where they pay.

The kernels run on a GPU. Without one they are interpreted if Triton is installed and
TRITON_INTERPRET=1 is set, in float16 alone: the interpreter does not round to bfloat16.
"""

import os
from importlib import import_module
from importlib.util import find_spec

import pytest
import torch
import torch.nn.functional as F

from engine.models.kernels import fused, machine
from engine.models.kernels.choice import SETTING, Kernels
from engine.models.kernels.linear import gated
from engine.models.ops import Rotary, rms_norm
from tests.support.micro import make_model

GPU = torch.cuda.is_available()
DEVICE = torch.device("cuda" if GPU else "cpu")
HALF = (torch.float16, torch.bfloat16) if GPU else (torch.float16,)
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
needs_triton = pytest.mark.skipif(
    find_spec("triton") is None or not (GPU or INTERPRETED), reason="needs Triton and a GPU"
)


@pytest.fixture(scope="module")
def kernels():
    return import_module("engine.models.kernels.triton_kernels").KERNELS


def drawn(*shape, seed=1, dtype=torch.float16):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).mul_(3).to(dtype)


def to_device(*parts):
    return [part.to(DEVICE) for part in parts]


@needs_triton
@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("shape", [(1, 3, 128), (2, 5, 96), (1, 4, 3, 32)])
def test_the_norm_is_cast_before_it_is_scaled(kernels, shape, dtype):
    x, weight = drawn(*shape, dtype=dtype), drawn(shape[-1], seed=2, dtype=dtype)
    found = kernels["norm"](*to_device(x, weight), 1e-5)
    assert fused.alike(found.cpu(), rms_norm(x, weight, 1e-5))


@needs_triton
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
        found = kernels["rotation"](*to_device(x, cos, sin)).cpu()
        assert fused.alike(found, rotary(x, cos, sin))
        assert not fused.alike(found, rotary(x, cos, -sin))


@needs_triton
@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("inner", [48, 1024, 1500])
def test_the_gate_rounds_its_activation(kernels, inner, dtype):
    x = drawn(1, 5, 2 * inner, dtype=dtype)
    assert fused.alike(kernels["gate"](x.to(DEVICE)).cpu(), gated(x.clone()))


def test_the_norm_in_another_order_gives_other_numbers():
    x, weight = drawn(1, 33, 128), drawn(128, seed=2)
    assert not torch.equal(rms_norm(x, weight, 1e-5), F.rms_norm(x, (128,), weight, 1e-5))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_torchs_norm_in_half_precision_has_float32_statistics(dtype):
    x, weight = drawn(2, 7, 128, dtype=dtype), drawn(128, seed=2, dtype=dtype)
    y = x.float()
    scaled = (y * (y.square().mean(-1, keepdim=True) + 1e-5).rsqrt()).to(dtype)
    assert torch.equal(rms_norm(x, weight, 1e-5), scaled * weight)


class FakeClock:
    """Seconds that only the calls of the stand-ins spend."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def stand_ins(clock, seconds, change=lambda out: out):
    """Kernels that compute as torch does, in so many seconds; torch's own take none."""

    def made(operation):
        def kernel(*operands):
            clock.now += seconds
            return change(operation(*operands))

        return kernel

    rotary = Rotary(8, 8, 1e4, torch.bfloat16, torch.device("cpu"))
    torchs = {"norm": rms_norm, "rotation": rotary, "gate": lambda x: gated(x.clone())}
    return {name: made(operation) for name, operation in torchs.items()}


def test_a_kernel_that_agrees_and_is_faster_is_used(monkeypatch):
    model, clock = make_model(2).bfloat16(), FakeClock()
    slow = {"rms_norm": rms_norm, "_gate": fused._gate}

    def slowly(operation):
        def timed(*operands):
            clock.now += 2.0
            return operation(*operands)

        return timed

    for name, operation in slow.items():
        monkeypatch.setattr(fused, name, slowly(operation))
    assert set(fused.checked(model, stand_ins(clock, 1.0), clock)) == {"norm", "gate"}
    assert set(fused.checked(model, stand_ins(clock, 3.0), clock)) == set()


@pytest.mark.parametrize("change", [lambda out: out * 1.02, lambda out: out[..., :1], torch.neg])
def test_a_kernel_that_differs_is_not_used(caplog, change):
    model, clock = make_model(2).bfloat16(), FakeClock()
    assert fused.checked(model, stand_ins(clock, 0.0, change), clock) == {}
    assert "norm differs from torch's operation here" in caplog.text


def test_a_kernel_that_fails_is_not_used(caplog):
    def fails(*operands):
        raise RuntimeError("no such instruction")

    found = fused.checked(make_model(2).bfloat16(), dict.fromkeys(("norm", "gate"), fails))
    assert found == {}
    assert "norm cannot be used (no such instruction)" in caplog.text


def test_a_model_uses_the_kernels_that_it_is_given():
    model, calls = make_model(2).bfloat16(), []

    def counted(name, operation):
        def kernel(*operands):
            calls.append(name)
            return operation(*operands)

        return kernel

    before = model.mlp(0, rows := torch.randn(1, 5, 32).bfloat16())
    rotary = Rotary(8, 8, 1e4, torch.bfloat16, torch.device("cpu"))
    torchs = {"norm": rms_norm, "rotation": rotary, "gate": gated}
    model.use_kernels(Kernels(fused={n: counted(n, f) for n, f in torchs.items()}))
    assert torch.equal(model.mlp(0, rows), before)
    assert calls == ["norm", "gate"]
    model.project(0, "qk", rows, slice(0, 5), 16)
    assert calls == ["norm", "gate", "rotation"]


def test_float32_and_a_machine_without_triton_use_torch(monkeypatch):
    assert fused.faster_kernels(make_model(2).float()) == {}
    monkeypatch.setattr(fused, "find_spec", lambda name: None)
    assert fused.faster_kernels(make_model(2).bfloat16()) == {}


@pytest.mark.skipif(not GPU, reason="needs a CUDA device")
def test_on_a_gpu_the_kernels_are_chosen(monkeypatch):
    model = make_model(2).bfloat16().to(DEVICE)
    machine.choose_kernels(model)
    assert not model.kernels.fused
    monkeypatch.delenv(SETTING)
    machine.choose_kernels(model)
    assert set(model.kernels.fused) == {"norm", "rotation", "gate"}
