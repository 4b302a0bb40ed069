"""Attention: equal results from the fused kernel, oneDNN and two products of all heads."""

import math

import pytest
import torch
from torch import nn

from engine.bench.floor import Buffers, ProductRecorder, ProductReplay
from engine.generate.capture.tape import Tape
from engine.models.attention import (
    MAX_SCORE_BYTES,
    OWN_ROUTINES,
    attention,
    attention_with_weights,
)
from engine.models.kernels.choice import TORCH
from engine.models.kernels.linear import ONEDNN_LINEAR

WIDTH = 16
MAX_SCORES = MAX_SCORE_BYTES // 4  # in float32
needs_onednn = pytest.mark.skipif(ONEDNN_LINEAR is None, reason="oneDNN is not available")


def inputs(rows, kv, keys):
    """Queries of 4 heads, keys, values and key mask of two sequences."""
    draw = torch.Generator().manual_seed(0)
    q = torch.randn(2, rows, 4, WIDTH, generator=draw, dtype=torch.float64)
    k, v = (torch.randn(2, kv, keys, WIDTH, generator=draw, dtype=torch.float64) for _ in "kv")
    return q, k, v, torch.rand(2, keys, generator=draw) > 0.3


def recorded_products(call):
    with ProductRecorder(nn.Module()) as found, torch.inference_mode():
        call()
    found.end_step()
    return found.steps


@needs_onednn
@pytest.mark.parametrize("routine", [TORCH, "by_head", "two_products"])
@pytest.mark.parametrize("rows", [50, 128])
@pytest.mark.parametrize(("kv", "keys"), [(4, 40), (2, 40), (2, 5000)])
def test_bfloat16_attention_on_a_cpu_differs_by_rounding_only(kv, keys, rows, routine):
    q, k, v, seen = inputs(rows, kv, keys)
    exact = attention(q, k, v, seen)
    rounded = attention(*(x.bfloat16() for x in (q, k, v)), seen, routine)
    assert rounded.dtype == torch.bfloat16
    torch.testing.assert_close(rounded.double(), exact, atol=0.03, rtol=0)
    assert (attention(q, k, v, None) - exact).abs().max() > 0.05
    assert (attention(q, k.flip(1), v, seen) - exact).abs().max() > 0.05


@needs_onednn
@pytest.mark.parametrize("routine", ["by_head", "two_products"])
@pytest.mark.parametrize("rows", [135, MAX_SCORES // 700 + 9], ids=["one chunk", "chunks"])
@pytest.mark.parametrize("masked", ["no", "keys", "keys of each row"])
@pytest.mark.parametrize("kv", [4, 2])
def test_other_routines_equal_the_fused_kernel(kv, masked, rows, routine):
    q, k, v, seen = inputs(rows, kv, 700)
    of_rows = torch.rand(1, rows, 700, generator=torch.Generator().manual_seed(1)) > 0.3
    seen = {"no": None, "keys": seen, "keys of each row": of_rows}[masked]
    single = [x.float() for x in (q, k, v)]
    found, weights = attention_with_weights(*single, seen, routine)
    exact, weighed = attention_with_weights(q, k, v, seen)
    torch.testing.assert_close(found.double(), exact, atol=1e-5, rtol=0)
    torch.testing.assert_close(weights.double(), weighed, atol=1e-5, rtol=0)
    torch.testing.assert_close(attention(q, k, v, seen), exact, atol=1e-12, rtol=0)
    for strided in (single, (single[0], *(x.mT.contiguous().mT for x in single[1:]))):
        same = attention(*strided, seen, routine)
        torch.testing.assert_close(same.double(), exact, atol=1e-5, rtol=0)
    other = attention(single[0], single[1].flip(1), single[2], seen, routine)
    assert (other - exact).abs().max() > 0.05


@needs_onednn
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("routine", ["by_head", "two_products"])
def test_large_scores_do_not_overflow(kind, routine, monkeypatch):
    q, k, v, seen = inputs(391, 2, 700)
    far = [x.to(kind) for x in (100 * q, k, v)]
    exact = attention(*(x.double() for x in far), seen)
    error = (attention(*far, seen, routine) - exact).abs().mean()
    assert error < (1e-3 if kind == torch.float32 else 0.2)
    monkeypatch.setattr("engine.models.attention._exp2_scores", lambda scores, *_: scores.exp2_())
    assert not attention(*far, seen, routine).isfinite().all()


@needs_onednn
@pytest.mark.parametrize("routine", [TORCH, "by_head", "two_products"])
def test_weights_in_bfloat16_are_float32_means(routine):
    q, k, v, seen = inputs(391, 2, 700)
    rounded = [x.bfloat16() for x in (q, k, v)]
    _, weights = attention_with_weights(*rounded, seen, routine)
    _, exact = attention_with_weights(*(x.double() for x in rounded), seen)
    assert weights.dtype == torch.float32
    torch.testing.assert_close(weights.double(), exact, atol=1e-5, rtol=0.02)
    assert (weights.bfloat16().double() - exact).abs().mean() > (weights - exact).abs().mean()


@needs_onednn
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("routine", ["by_head", "two_products"])
@pytest.mark.parametrize("factor", [1, 5])
def test_the_maximum_of_small_scores_is_not_subtracted(factor, routine, kind):
    q, k, v, seen = inputs(391, 2, 700)
    rounded = [x.to(kind) for x in (factor * q, k, v)]
    exact = attention(*(x.double() for x in rounded), seen)
    found = attention(*rounded, seen, routine)
    plain, with_maximum = (OWN_ROUTINES[routine](*rounded, seen, way)[0] for way in (False, True))
    assert torch.equal(found, plain)
    assert not torch.equal(found, with_maximum)
    assert 0 < (found - exact).abs().mean() < 1.1 * (with_maximum - exact).abs().mean()


@needs_onednn
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("routine", ["by_head", "two_products"])
@pytest.mark.parametrize("shift", [-400, -200, 200, 400])
def test_the_maximum_of_extreme_scores_is_subtracted(shift, routine, kind):
    """All scores of the last query lie near `shift`, in powers of 2."""
    q, k, v, seen = inputs(40, 2, 70)
    k[..., -1], q[..., -1] = 1, 0
    q[:, -1, :, -1] = shift * WIDTH**0.5 / math.log2(math.e)
    rounded = [x.to(kind) for x in (q, k, v)]
    exact = attention(*(x.double() for x in rounded), seen)
    found = attention(*rounded, seen, routine)
    assert torch.equal(found, OWN_ROUTINES[routine](*rounded, seen, True)[0])
    assert found.isfinite().all()
    if kind == torch.float32:
        torch.testing.assert_close(found.double(), exact, atol=1e-3, rtol=0)
    if abs(shift) == 400:
        assert not OWN_ROUTINES[routine](*rounded, seen, False)[0].isfinite().all()


@needs_onednn
@pytest.mark.parametrize("routine", ["by_head", "two_products"])
def test_a_tape_asks_again_whether_the_maximum_is_needed(routine):
    q, k, v, seen = (x.bfloat16() if x.is_floating_point() else x for x in inputs(391, 2, 700))
    with torch.inference_mode():
        with Tape() as tape:
            out = attention(q, k, v, seen, routine)
        replay = tape.make_replay([out])
        assert not tape.failure
        q *= 100
        (found,) = replay()
        assert torch.equal(found, attention(q, k, v, seen, routine))
        assert found.isfinite().all()
        assert not torch.equal(found, out)


@needs_onednn
def test_many_keys_make_many_chunks():
    q, k, v, _ = (x.float() for x in inputs(33, 1, MAX_SCORES // 15))
    found = attention(q[:, :, :1], k, v, None, "by_head")
    exact = attention(*(x.double() for x in (q[:, :, :1], k, v)), None)
    torch.testing.assert_close(found.double(), exact, atol=1e-5, rtol=0)
    (products,) = recorded_products(lambda: attention(q[:, :, :1], k, v, None, "by_head"))
    assert [p.rows for p in products if p.role == "scores"] == [16] * 6


@needs_onednn
@pytest.mark.parametrize("routine", [TORCH, "by_head", "two_products"])
@pytest.mark.parametrize(("kind", "rows"), [(torch.float32, 24), (torch.bfloat16, 128)])
def test_products_of_every_routine_are_recorded(kind, rows, routine):
    q, k, v, _ = (x.to(kind) for x in inputs(rows, 2, 700))
    ((*products,),) = recorded_products(lambda: attention(q, k, v, None, routine))
    assert {p.onednn for p in products} == {routine == "by_head"}
    assert {p.role for p in products} == ({""} if routine == "two_products" else {"scores", "sums"})
    assert sum(p.flops for p in products) == 4 * q.numel() * 700


@needs_onednn
def test_recorded_products_are_replayed_with_either_library():
    q, k, v, _ = (x.float() for x in inputs(392, 2, 700))
    steps = recorded_products(lambda: attention(q, k, v, None, "by_head"))
    assert sum(p.flops for p in steps[0]) == 4 * q.numel() * 700
    buffers = Buffers(steps, torch.device("cpu"))
    for own in (False, True):
        (again,) = recorded_products(ProductReplay(steps, buffers, own).run)
        assert [p.flops for p in again] == [p.flops for p in steps[0]]
        assert {p.onednn for p in again} == {own}
