"""Linear layers by every routine: equal to torch's products, copies of weights, row padding."""

import pytest
import torch
import torch.nn.functional as F

from engine.bench.floor import Buffers, ProductRecorder, ProductReplay
from engine.models.kernels.choice import TORCH, Kernels, ShapeClass
from engine.models.kernels.linear import (
    BFLOAT16,
    COPIES,
    MAX_COPIED_BYTES,
    MAX_PADDED_ROWS,
    ONEDNN_LINEAR,
    FusedLinear,
    SwiGLU,
    without_row_padding,
)
from engine.models.loading.random_weights import random_adapter, random_model_config
from tests.support.fixed_kernels import FixedKernels

pytestmark = pytest.mark.skipif(ONEDNN_LINEAR is None, reason="oneDNN is not available")
needs_bfloat16 = pytest.mark.skipif(not BFLOAT16, reason="oneDNN cannot multiply bfloat16 here")


def randomized(layer, routine="packed"):
    draw = torch.Generator().manual_seed(0)
    for tensor in layer.requires_grad_(False).parameters():
        tensor.normal_(generator=draw)
    layer.kernels = FixedKernels(routine)
    return layer


def projection(d_in=256, d_out=384, bias=True, dtype=torch.float32, routine="packed"):
    return randomized(FusedLinear(d_in, d_out, bias), routine).to(dtype)


def rows(count, width=256, dtype=torch.float32):
    return torch.randn(1, count, width, generator=torch.Generator().manual_seed(1)).to(dtype)


def products(layer, *given):
    with ProductRecorder(layer) as noted, torch.inference_mode():
        layer(*given)
    noted.end_step()
    return noted.steps[0]


def library(layer, *given):
    """The library that computes a projection."""
    (product,) = products(layer, *given)
    return "oneDNN" if product.onednn else "torch"


@pytest.mark.parametrize("routine", ["transposed", "onednn", "packed"])
@pytest.mark.parametrize(("lo", "hi"), [(0, None), (128, 384), (0, 256)])
@pytest.mark.parametrize("bias", [True, False])
def test_outputs_equal_those_of_torch(lo, hi, bias, routine):
    layer, x = projection(bias=bias, routine=routine), rows(64)
    added = layer.bias[lo:hi] if bias else None
    wanted = F.linear(x, layer.weight[lo:hi], added)
    found = layer(x, lo, hi)
    assert library(layer, x, lo, hi) == ("torch" if routine == "transposed" else "oneDNN")
    assert torch.allclose(found, wanted, atol=1e-4)
    assert not torch.allclose(found, F.linear(x, layer.weight.roll(1, 0)[lo:hi], added), atol=1e-2)


@pytest.mark.parametrize("routine", [TORCH, "transposed", "onednn", "packed"])
@pytest.mark.parametrize("count", [3, 61, MAX_PADDED_ROWS + 3])
def test_swiglu_equals_the_formula(count, routine):
    layer, x = randomized(SwiGLU(256, 344), routine), rows(count)
    gate, up = (x.double() @ layer.weight.double().T).chunk(2, -1)
    wanted, found = F.silu(gate) * up, layer(x)
    assert {p.onednn for p in products(layer, x)} == {routine in ("onednn", "packed")}
    assert found.shape == wanted.shape
    assert (found - wanted).abs().max() < 1e-4 * wanted.abs().max()
    assert not torch.allclose(found.double(), gate * F.silu(up), rtol=0.1)


@needs_bfloat16
def test_swiglu_in_bfloat16_rounds_once():
    layer, x = randomized(SwiGLU(256, 344)).to(torch.bfloat16), rows(64, dtype=torch.bfloat16)
    gate, up = (x.double() @ layer.weight.double().T).chunk(2, -1)
    wanted = F.silu(gate) * up
    left, right = F.linear(x, layer.weight).chunk(2, -1)
    error, other = ((y - wanted).norm() for y in (layer(x), F.silu(left) * right))
    assert error < other


def test_the_measured_routine_of_the_class_is_used():
    layer = projection()
    sizes = layer.in_features, layer.out_features
    layer.kernels = Kernels({
        ShapeClass.of("linear", dtype, n, sizes): {TORCH: 2.0, "onednn": 1.0}
        for dtype in (torch.float32, torch.bfloat16)
        for n in (128, 512)
    })  # fmt: skip
    assert library(layer, rows(8)) == library(layer, rows(32)) == "torch"
    assert torch.equal(layer(rows(8)), F.linear(rows(8), layer.weight, layer.bias))
    assert library(layer, rows(100)) == "oneDNN"
    assert not layer._copies
    exact = projection(dtype=torch.float64)
    assert library(exact, rows(100, dtype=torch.float64)) == "torch"
    half = projection(dtype=torch.bfloat16)
    half.kernels = exact.kernels = layer.kernels
    wanted = "oneDNN" if BFLOAT16 else "torch"
    assert library(half, rows(100, dtype=torch.bfloat16)) == wanted
    layer.kernels = Kernels()
    assert library(layer, rows(100)) == "torch"


@pytest.mark.parametrize("routine", COPIES)
def test_small_weights_are_copied_once_per_slice(routine):
    layer, x = projection(routine=routine), rows(64)
    layer(x), layer(x), layer(x, 0, 128)
    assert set(layer._copies) == {(routine, 0, 384), (routine, 0, 128)}
    large = projection(1024, MAX_COPIED_BYTES // 4096 + 1, routine=routine)
    large(rows(64, 1024))
    offloaded = projection(routine=routine)
    offloaded.offloaded = True
    offloaded(x)
    assert not large._copies
    assert not offloaded._copies


def test_the_memory_of_a_transposed_copy_is_that_of_the_other_order():
    layer = projection(routine="transposed")
    weight, bias = layer.routine_slice("transposed", 0, 128)
    assert weight.t().is_contiguous()
    assert torch.equal(weight, layer.weight[:128])
    assert torch.equal(bias, layer.bias[:128])


def new_storage(layer):
    layer.weight.data = 2 * layer.weight


def replaced_parameter(layer):
    layer.weight = torch.nn.Parameter(2 * layer.weight, requires_grad=False)


CHANGES = {
    "load_state_dict": lambda layer: layer.load_state_dict({"weight": 2 * layer.weight}),
    "assign": lambda layer: layer.load_state_dict({"weight": 2 * layer.weight}, assign=True),
    "in-place": lambda layer: layer.weight.mul_(2),
    "data": new_storage,
    "parameter": replaced_parameter,
    "convert": lambda layer: layer._apply(lambda tensor: 2 * tensor),
}


@pytest.mark.parametrize("routine", COPIES)
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_changed_weights_replace_their_copy(change, routine):
    layer, x = projection(bias=False, routine=routine), rows(64)
    before, part = layer(x), layer(x, 128, 384)
    change(layer)
    torch.testing.assert_close(layer(x), 2 * before)
    torch.testing.assert_close(layer(x, 128, 384), 2 * part)
    with torch.inference_mode():
        layer.weight.zero_()
    assert not layer(x).any()


def test_a_changed_bias_is_added():
    layer, x = projection(), rows(64)
    before = layer(x, 128, 384)
    layer.bias = torch.nn.Parameter(layer.bias + 1, requires_grad=False)
    torch.testing.assert_close(layer(x, 128, 384), before + 1)


def test_a_swiglu_follows_its_state_dict():
    layer, x = randomized(SwiGLU(256, 344)), rows(64)
    assert layer(x).any()
    layer.load_state_dict({"weight": torch.zeros_like(layer.weight)})
    assert not layer(x).any()


def test_recorded_products_are_replayed_with_either_library():
    shape = random_model_config("llada:layers=2,d=256,heads=4,ffn=512,vocab=1024")
    adapter = random_adapter(shape, torch.float32, torch.device("cpu"))
    adapter.use_kernels(FixedKernels("packed"))
    with ProductRecorder(adapter) as noted, torch.inference_mode():
        adapter.mlp(0, rows(64))
    noted.end_step()
    buffers = Buffers(noted.steps, torch.device("cpu"))
    for own in (False, True):
        with ProductRecorder(adapter) as again:
            ProductReplay(noted.steps, buffers, own).run()
        again.end_step()
        assert [p.onednn for p in again.steps[0]] == [own] * 3
        assert [p.flops for p in again.steps[0]] == [p.flops for p in noted.steps[0]]


@pytest.mark.parametrize(
    ("count", "multiplied"), [(57, 64), (64, 64), (MAX_PADDED_ROWS + 1, MAX_PADDED_ROWS + 1)]
)
def test_small_row_counts_are_padded_and_the_result_is_cut(count, multiplied):
    layer, x = projection(), rows(count)
    with ProductRecorder(layer) as noted, torch.inference_mode():
        found = layer(x)
    noted.end_step()
    ((product,),) = noted.steps
    assert product.rows == multiplied
    assert found.shape == (1, count, 384)
    assert torch.allclose(found, F.linear(x, layer.weight, layer.bias), atol=1e-4)


@pytest.mark.parametrize(
    "layer", [projection(), randomized(SwiGLU(256, 344))], ids=["plain", "gated"]
)
def test_rows_are_not_padded_while_row_counts_repeat(layer):
    x, filled = rows(57), layer(rows(57))
    assert {p.rows for p in without_row_padding(lambda: products(layer, x))} == {57}
    assert torch.equal(without_row_padding(lambda: layer(x)), filled)
    assert {p.rows for p in products(layer, x)} == {64}
