"""Rows times weights by oneDNN: the same numbers, packed where small, torch's own elsewhere."""

import pytest
import torch
import torch.nn.functional as F

from engine.bench.floor import Buffers, ProductRecorder, ProductReplay
from engine.models.linear import FEW, LEAST, ONEDNN, SMALL, Gated, Projection, recurring
from engine.models.loading.random_weights import config_of, random_adapter

pytestmark = pytest.mark.skipif(ONEDNN is None, reason="torch multiplies without oneDNN here")


def drawn(made):
    draw = torch.Generator().manual_seed(0)
    for tensor in made.requires_grad_(False).parameters():
        tensor.normal_(generator=draw)
    return made


def projection(d_in=256, d_out=384, bias=True, dtype=torch.float32):
    return drawn(Projection(d_in, d_out, bias)).to(dtype)


def rows(count, width=256, dtype=torch.float32):
    return torch.randn(1, count, width, generator=torch.Generator().manual_seed(1)).to(dtype)


def products(made, *given):
    with ProductRecorder(made) as noted, torch.inference_mode():
        made(*given)
    noted.end_step()
    return noted.steps[0]


def routine(made, *given):
    """The routine by which a projection multiplies, by name."""
    (product,) = products(made, *given)
    return "oneDNN" if product.onednn else "torch"


@pytest.mark.parametrize(("lo", "hi"), [(0, None), (128, 384), (0, 256)])
@pytest.mark.parametrize("bias", [True, False])
def test_outputs_are_those_of_torch(lo, hi, bias):
    made, x = projection(bias=bias), rows(64)
    added = made.bias[lo:hi] if bias else None
    wanted = F.linear(x, made.weight[lo:hi], added)
    found = made(x, lo, hi)
    assert routine(made, x, lo, hi) == "oneDNN"
    assert torch.allclose(found, wanted, atol=1e-4)
    assert not torch.allclose(found, F.linear(x, made.weight.roll(1, 0)[lo:hi], added), atol=1e-2)


@pytest.mark.parametrize("count", [3, 61, FEW + 3])
def test_the_gate_is_that_of_torch(count):
    made, x = drawn(Gated(256, 344)), rows(count)
    gate, up = (x.double() @ made.weight.double().T).chunk(2, -1)
    wanted, found = F.silu(gate) * up, made(x)
    assert {p.onednn for p in products(made, x)} == {count > 3}
    assert found.shape == wanted.shape
    assert (found - wanted).abs().max() < 1e-4 * wanted.abs().max()
    assert not torch.allclose(found.double(), gate * F.silu(up), rtol=0.1)


def test_a_gate_in_bfloat16_rounds_once():
    made, x = drawn(Gated(256, 344)).to(torch.bfloat16), rows(64, dtype=torch.bfloat16)
    gate, up = (x.double() @ made.weight.double().T).chunk(2, -1)
    wanted = F.silu(gate) * up
    left, right = F.linear(x, made.weight).chunk(2, -1)
    error, other = ((y - wanted).norm() for y in (made(x), F.silu(left) * right))
    assert error < other


def test_few_rows_and_other_formats_are_multiplied_by_torch():
    made = projection()
    few = LEAST // (256 * 384) - 1
    assert routine(made, rows(few)) == "torch"
    assert torch.equal(made(rows(few)), F.linear(rows(few), made.weight, made.bias))
    assert routine(made, rows(few + 2)) == "oneDNN"
    exact = projection(dtype=torch.float64)
    assert routine(exact, rows(64, dtype=torch.float64)) == "torch"
    half = projection(dtype=torch.bfloat16)
    assert routine(half, rows(64, dtype=torch.bfloat16)) == "oneDNN"


def test_small_weights_are_packed_once_a_run_of_outputs():
    made, x = projection(), rows(64)
    made(x), made(x), made(x, 0, 128)
    assert set(made._packed) == {(0, 384), (0, 128)}
    large = projection(1024, SMALL // 4096 + 1)
    large(rows(64, 1024))
    fetched = projection()
    fetched.fetched = True
    fetched(x)
    assert not large._packed
    assert not fetched._packed


def test_a_converted_model_multiplies_by_its_new_weights():
    made, x = projection(), rows(64)
    before = made(x)
    made.apply(lambda module: module._apply(lambda tensor: 2 * tensor))
    assert torch.allclose(made(x), 2 * before, atol=1e-3)


def test_products_are_multiplied_again_by_either_routine():
    shape = config_of("llada:layers=2,d=256,heads=4,ffn=512,vocab=1024")
    adapter = random_adapter(shape, torch.float32, torch.device("cpu"))
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


@pytest.mark.parametrize(("count", "multiplied"), [(57, 64), (64, 64), (FEW + 1, FEW + 1)])
def test_few_rows_fill_up_a_stride_and_come_out_as_they_went_in(count, multiplied):
    made, x = projection(), rows(count)
    with ProductRecorder(made) as noted, torch.inference_mode():
        found = made(x)
    noted.end_step()
    ((product,),) = noted.steps
    assert product.rows == multiplied
    assert found.shape == (1, count, 384)
    assert torch.allclose(found, F.linear(x, made.weight, made.bias), atol=1e-4)


@pytest.mark.parametrize("made", [projection(), drawn(Gated(256, 344))], ids=["plain", "gated"])
def test_a_number_of_rows_that_recurs_is_not_filled_up(made):
    x, filled = rows(57), made(rows(57))
    assert {p.rows for p in recurring(lambda: products(made, x))} == {57}
    assert torch.equal(recurring(lambda: made(x)), filled)
    assert {p.rows for p in products(made, x)} == {64}
