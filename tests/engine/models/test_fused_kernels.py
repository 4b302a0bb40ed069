"""The fused kernels round where torch's operations do, and are used only where they pay.

The kernels run on a GPU. Without one they are interpreted if Triton is installed and
TRITON_INTERPRET=1 is set, in float16 alone: the interpreter does not round to bfloat16.
"""

import os
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

from engine.core.rows import ALL, put, take
from engine.core.variables import KERNELS
from engine.models.attention import attention
from engine.models.kernels import fused, fused_trials, machine
from engine.models.kernels.choice import TORCH, Kernels
from engine.models.kernels.linear import gated
from engine.models.kernels.measure import median_times
from engine.models.ops import Rotary, add_branches, drift, rms_norm, top_drift
from tests.support.micro import SOFTMAX_EXPERTS, make_model

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
    assert not fused.alike(found.cpu(), rms_norm(x, weight * 1.01, 1e-5))


@needs_triton
@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("width", [16, 12])
@pytest.mark.parametrize("heads", [1, 3, 20])
@pytest.mark.parametrize("batch", [1, 2])
def test_heads_rotate_by_their_positions(kernels, batch, heads, width, dtype):
    """Of heads of 20 values in a wider product; positions are a range or those of each sequence."""
    rotary = Rotary(64, width, 1e4, dtype, torch.device("cpu"))
    x = drawn(batch, 7, heads + 2, 20, dtype=dtype)[:, :, :heads, :width]
    index = torch.stack([torch.randperm(64)[:7].sort().values for _ in range(batch)])
    for rows, other in ((slice(5, 12), slice(6, 13)), (index, index.roll(1, 1)), (ALL, index)):
        x = x if rows is not ALL else x.repeat(1, 10, 1, 1)[:, :64]
        place = rows.to(DEVICE) if isinstance(rows, torch.Tensor) else rows
        found = kernels["rotation"](*to_device(x, rotary.table), place).cpu()
        assert fused.alike(found, rotary(x, rows))
        assert rows is ALL or not fused.alike(found, rotary(x, other))


@needs_triton
@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("inner", [48, 1024, 1500])
def test_the_gate_rounds_its_activation(kernels, inner, dtype):
    x = drawn(1, 5, 2 * inner, dtype=dtype)
    assert fused.alike(kernels["gate"](x.to(DEVICE)).cpu(), gated(x.clone()))


@needs_triton
@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("width", [16, 100])
def test_drifts_are_those_of_torchs_operations(kernels, width, dtype):
    """Of heads out of a wider product; equal rows and rows of zeros have the drifts 0 and 1/2."""
    old = drawn(2, 9, 3, width, dtype=dtype)[:, :, 0]
    new = old + drawn(2, 9, width, seed=2, dtype=dtype) / 50
    new[:, 3], new[:, 4] = old[:, 3], 0
    found = kernels["drift"](*to_device(new, old)).cpu()
    assert fused.alike(found, expected := drift(new, old))
    assert not fused.alike(found * 1.001, expected)
    assert found[:, 3].eq(0).all()
    assert found[:, 4].sub(0.5).abs().max() < 1e-5


@needs_triton
@pytest.mark.parametrize("dtype", HALF)
def test_drifts_by_head_are_those_of_whole_rows(kernels, dtype):
    """Stored keys have another order of heads and rows than computed ones."""
    old, new = drawn(2, 3, 9, 20, dtype=dtype), drawn(2, 9, 4, 20, seed=2, dtype=dtype)[:, :, :3]
    found = kernels["drift"](*to_device(new, old.transpose(1, 2)))
    assert fused.alike(found.cpu(), drift(new.flatten(2), old.transpose(1, 2).flatten(2)))
    stored = old.to(DEVICE)
    again = kernels["drift"](new.to(DEVICE), stored.transpose(1, 2), replace=True)
    assert torch.equal(again, found)
    assert torch.equal(stored.cpu(), new.transpose(1, 2))


@needs_triton
@pytest.mark.parametrize("n", [1, 7, 130, 1024])
def test_rows_that_drifted_most_are_selected(kernels, n):
    """Also among equal drifts, of which the first are taken, and with a drift that is no number."""
    drifts = drawn(3, n, dtype=torch.float32).abs()
    drifts[1] = drifts[1].round()
    drifts[2], drifts[2, n // 2] = 0, torch.nan
    for count in sorted({1, n // 4 + 1, n}):
        rows, places = kernels["selection"](drifts.to(DEVICE), count, 5)
        expected = top_drift(drifts, count, 5)
        assert torch.equal(rows.cpu(), expected[0])
        assert torch.equal(places.cpu(), expected[1])


@needs_triton
@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("width", [20, 4100])
def test_rows_are_gathered_and_added(kernels, width, dtype):
    x, added = drawn(2, 9, width + 4, dtype=dtype)[..., :width], drawn(2, 3, width, dtype=dtype)
    rows = torch.tensor([[0, 4, 8], [1, 2, 2]])
    operands = to_device(x, rows)
    assert torch.equal(kernels["gather"](*operands).cpu(), take(x, rows))
    assert torch.equal(kernels["gather"](*operands, added.to(DEVICE)).cpu(), take(x, rows) + added)


@needs_triton
@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("width", [20, 4100])
def test_branches_are_added_and_their_sum_is_stored(kernels, width, dtype):
    """The last row of the index is repeated."""
    h, attn, ffn = (drawn(2, n, width, seed=n, dtype=dtype) for n in (6, 3, 4))
    rows, ffn = torch.tensor([[0, 4, 4], [1, 2, 2]]), ffn[:, :3]
    attn[:, 2], ffn[:, 2] = attn[:, 1], ffn[:, 1]
    stored = drawn(2, 9, width, seed=1, dtype=dtype)
    found = stored.to(DEVICE)
    total = kernels["branches"](*to_device(h, rows, attn, ffn), found[:, 3:])
    assert torch.equal(total.cpu(), add_branches(h, rows, attn, ffn, stored[:, 3:]))
    assert torch.equal(found.cpu(), stored)


@needs_triton
@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize(("rows", "width", "inner"), [(3, 200, 40), (20, 64, 96)])
def test_a_gated_product_of_few_rows_rounds_its_parts(kernels, rows, width, inner, dtype):
    x, weight = drawn(1, rows, width, dtype=dtype), drawn(2 * inner, width, seed=2, dtype=dtype)
    weight = weight / width**0.5
    expected = fused_trials.gated_product(*to_device(x, weight))
    found = kernels["swiglu"](*to_device(x, weight))
    assert fused.alike(found, expected, 0.9)
    assert not fused.alike(found, fused_trials.gated_product(*to_device(x, weight.roll(1, 0))), 0.9)


@needs_triton
@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize(("batch", "rows", "keys"), [(1, 3, 5), (1, 32, 64), (2, 16, 200)])
@pytest.mark.parametrize(("heads", "shared", "width"), [(2, 1, 24), (4, 2, 128)])
def test_attention_of_few_rows_is_as_exact_as_torchs(
    kernels, heads, shared, width, batch, rows, keys, dtype
):
    q = drawn(batch, rows, heads + 1, width, dtype=dtype)[:, :, :heads] / 3
    k, v = (drawn(batch, heads // shared, keys, width, seed=s, dtype=dtype) for s in (2, 3))
    exact = attention(q.double(), k.double(), v.double(), None)
    found = kernels["attention"](*to_device(q, k, v)).cpu()
    torchs = attention(*to_device(q, k, v), None).cpu()
    assert found.dtype == dtype
    wrong, allowed = ((x.double() - exact).square().mean().sqrt() for x in (found, torchs))
    assert wrong < 1.5 * allowed
    others = attention(q.double(), k.double().roll(1, 2), v.double(), None)
    assert (others - exact).square().mean().sqrt() > 10 * allowed


@needs_triton
@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("shape", [(3, 20), (1, 96)])
@pytest.mark.parametrize("batch", [1, 2])
def test_rows_are_written_where_they_belong(kernels, batch, shape, dtype):
    """By head and of whole rows, at an index, a slice and all; the other rows stay."""
    heads, width = shape
    index = torch.stack([torch.randperm(12)[:7].sort().values for _ in range(batch)])
    for rows, n in ((index, 7), (slice(4, 9), 5), (ALL, 12)):
        values = drawn(batch, n, heads + 1, width, dtype=dtype)[:, :, :heads]
        for dim, shown in ((2, values.transpose(1, 2)), (1, values.flatten(2))):
            x = drawn(*((batch, heads, 12, width) if dim == 2 else (batch, 12, heads * width)),
                      seed=3, dtype=dtype)  # fmt: skip
            found = x.to(DEVICE)
            place = rows.to(DEVICE) if isinstance(rows, torch.Tensor) else rows
            assert kernels["write"](found, place, shown.to(DEVICE), dim) is found
            put(x, rows, shown, dim)
            assert torch.equal(found.cpu(), x)


def test_a_kernel_that_writes_nothing_differs(monkeypatch):
    monkeypatch.setattr(
        fused, "median_times", lambda runs, clock: dict.fromkeys(runs, 1.0) | {"write": 0.5}
    )
    model = make_model(2).bfloat16()
    assert set(fused.checked(model, {"write": fused_trials.written})) == {"write"}
    assert fused.checked(model, {"write": lambda x, rows, values, dim: x}) == {}


def test_a_kernel_that_does_not_store_what_it_adds_differs(monkeypatch):
    monkeypatch.setattr(
        fused, "median_times", lambda runs, clock: dict.fromkeys(runs, 1.0) | {"branches": 0.5}
    )

    def without_writes(*operands):
        return add_branches(*(part.clone() for part in operands))

    model = make_model(2).bfloat16()
    assert set(fused.checked(model, {"branches": add_branches})) == {"branches"}
    assert fused.checked(model, {"branches": without_writes}) == {}


def test_the_norm_in_another_order_gives_other_numbers():
    x, weight = drawn(1, 33, 128), drawn(128, seed=2)
    assert not fused.alike(rms_norm(x, weight, 1e-5), F.rms_norm(x, (128,), weight, 1e-5))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_norm_in_half_precision_has_float32_statistics(dtype):
    """Another order of float32 roundings changes few numbers, statistics in the dtype many."""
    x, weight = drawn(2, 7, 128, dtype=dtype), drawn(128, seed=2, dtype=dtype)
    y = x.float()
    scaled = (y * (y.square().mean(-1, keepdim=True) + 1e-5).rsqrt()).to(dtype)
    assert (rms_norm(x, weight, 1e-5) != scaled * weight).float().mean() < 0.01


class Trials:
    """A clock that torch's norm and gate move by 2 seconds a call, and kernels that take others."""

    def __init__(self, monkeypatch):
        self.now, self.model = 0.0, make_model(2).bfloat16()
        self.torchs = {"norm": rms_norm, "gate": fused_trials.gated}
        for name, operation in (("rms_norm", rms_norm), ("gated", fused_trials.gated)):
            monkeypatch.setattr(fused_trials, name, self.timed(operation, 2.0))

    def timed(self, operation, seconds, change=lambda out: out):
        def call(*operands):
            self.now += seconds
            return change(operation(*operands))

        return call

    def used(self, seconds, change=lambda out: out):
        """The kernels that are used if they take so long, and change their results so."""
        kernels = {n: self.timed(one, seconds, change) for n, one in self.torchs.items()}
        return set(fused.checked(self.model, kernels, lambda: self.now))


@pytest.fixture
def trials(monkeypatch):
    return Trials(monkeypatch)


@pytest.mark.parametrize(
    ("seconds", "used"), [(1.0, {"norm", "gate"}), (1.95, set()), (3.0, set())]
)
def test_a_kernel_that_agrees_and_is_faster_is_used(trials, seconds, used):
    assert trials.used(seconds) == used


@pytest.mark.parametrize("change", [lambda out: out * 1.02, lambda out: out[..., :1], torch.neg])
def test_a_kernel_that_differs_is_not_used(trials, caplog, change):
    assert trials.used(0.0, change) == set()
    for name in ("norm", "gate"):
        assert f"{name} differs from torch's operation on this GPU" in caplog.text


def test_a_kernel_that_fails_is_not_used(trials, caplog):
    def fails(out):
        raise RuntimeError("no such instruction")

    assert trials.used(0.0, fails) == set()
    for name in ("norm", "gate"):
        assert f"{name} cannot be used (no such instruction)" in caplog.text


def test_a_model_uses_the_kernels_that_it_is_given():
    model, calls = make_model(2).bfloat16(), []

    def counted(name, operation):
        def kernel(*operands):
            calls.append(name)
            return operation(*operands)

        return kernel

    before = model.mlp(0, rows := torch.randn(1, 5, 32).bfloat16())
    rotary = Rotary(8, 8, 1e4, torch.bfloat16, torch.device("cpu"))
    rotation = partial(fused_trials.rotated, rotary)
    torchs = {"norm": rms_norm, "rotation": rotation, "gate": gated}
    model.use_kernels(Kernels(fused={n: counted(n, f) for n, f in torchs.items()}))
    assert torch.equal(model.mlp(0, rows), before)
    assert calls == ["norm", "gate"]
    model.project(0, "qk", rows, slice(0, 5), 16)
    assert calls == ["norm", "gate", "rotation"]


@pytest.fixture
def installed(monkeypatch):
    """Triton is installed, and all its kernels agree and are faster."""
    products = {"gate": gated, "swiglu": fused_trials.gated_product}
    made = SimpleNamespace(KERNELS={"norm": rms_norm, "rotation": None, **products})
    monkeypatch.setattr(fused, "find_spec", lambda name: made)
    monkeypatch.setattr(fused, "import_module", lambda name: made)
    monkeypatch.setattr(fused, "checked", lambda adapter, kernels: kernels)
    return made.KERNELS


@pytest.mark.usefixtures("installed")
def test_float32_weights_in_several_places_and_a_machine_without_triton_use_torch(monkeypatch):
    half = make_model(2).bfloat16()
    assert fused.faster_kernels(half)
    assert fused.faster_kernels(make_model(2).float()) == {}
    half.block(1).out._hf_hook = object()
    assert fused.faster_kernels(half) == {}
    monkeypatch.setattr(fused, "find_spec", lambda name: None)
    assert fused.faster_kernels(make_model(2).bfloat16()) == {}


def test_a_model_with_experts_has_no_fused_gate(installed):
    sizes = {"ffn": 0, "experts": SOFTMAX_EXPERTS}
    assert set(fused.faster_kernels(make_model(2, **sizes).bfloat16())) == {"norm", "rotation"}
    assert fused.faster_kernels(make_model(2).bfloat16()) == installed


def test_a_triton_that_cannot_be_imported_is_not_used(monkeypatch, caplog):
    def fails(name):
        raise OSError("no such library")

    monkeypatch.setattr(fused, "find_spec", lambda name: name)
    monkeypatch.setattr(fused, "import_module", fails)
    assert fused.faster_kernels(make_model(2).bfloat16()) == {}
    assert "Triton cannot be used (no such library)" in caplog.text


@pytest.mark.skipif(not GPU, reason="needs a CUDA device")
def test_on_a_gpu_every_kernel_is_tried_and_agrees(monkeypatch, kernels, caplog):
    """Which of them are faster is left open, because other programs may use the GPU."""
    model = make_model(2).bfloat16().to(DEVICE)
    machine.choose_kernels(model)
    assert not model.kernels.fused
    monkeypatch.delenv(KERNELS)
    tried = []
    monkeypatch.setattr(
        fused, "median_times", lambda runs, clock: tried.extend(runs) or median_times(runs, clock)
    )
    machine.choose_kernels(model)
    assert set(tried) == {TORCH, *kernels}
    assert set(model.kernels.fused) <= set(kernels)
    assert not caplog.records
