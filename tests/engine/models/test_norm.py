"""RMS norm on a CPU: by the length of each row, with the weight as it is at the call."""

import pytest
import torch
import torch.nn.functional as F

from engine.models.ops import RMSNorm, rms_norm

DTYPES = (torch.float32, torch.float64)


def norm_of(width, dtype=torch.float64, eps=1e-5):
    norm = RMSNorm(width, eps).to(dtype).requires_grad_(False)
    norm.weight.copy_(torch.linspace(-1, 2, width))
    return norm


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 1), (2, 3, 20), (1, 5, 4, 33), (2, 0, 8), (7, 4096)])
@pytest.mark.parametrize("scale", [1e-8, 1e-3, 1, 1e8])
def test_rows_are_divided_by_the_root_of_their_mean_square(shape, scale, dtype):
    """Also rows so short that eps decides, and rows of zeros."""
    norm = norm_of(shape[-1], dtype)
    x = torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=dtype) * scale
    x[..., :1, :] = 0
    mean = x.double().square().mean(-1, keepdim=True)
    expected = (x.double() * (mean + norm.eps).rsqrt() * norm.weight.double()).to(dtype)
    torch.testing.assert_close(norm(x), expected, rtol=8 * torch.finfo(dtype).eps, atol=0)


def test_heads_that_are_not_contiguous_are_normed():
    norm, x = norm_of(8), torch.randn(2, 3, 5, 16, dtype=torch.float64)[..., :8].transpose(1, 2)
    torch.testing.assert_close(norm(x), F.rms_norm(x, (8,), norm.weight, norm.eps))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_normed_in_float32_and_cast_before_the_scale(dtype):
    norm, x = norm_of(20, dtype), torch.randn(3, 20).to(dtype)
    assert torch.equal(norm(x), rms_norm(x, norm.weight, norm.eps))


def test_a_weight_that_changed_in_place_is_used():
    norm, x = norm_of(8), torch.randn(3, 8, dtype=torch.float64)
    before = norm(x)
    norm.weight.mul_(2)
    torch.testing.assert_close(norm(x), 2 * before)


def test_a_weight_that_was_replaced_or_cast_is_used():
    norm, x = norm_of(8), torch.randn(3, 8, dtype=torch.float64)
    before = norm(x)
    norm.weight = torch.nn.Parameter(norm.weight * 3, requires_grad=False)
    torch.testing.assert_close(norm(x), 3 * before)
    norm.float()
    norm.weight.neg_()
    torch.testing.assert_close(norm(x.float()), -3 * before.float())
