"""The RMS norm in half precision: statistics in float32, a cast, then the scale."""

import pytest
import torch
import torch.nn.functional as F

from engine.models.ops import RMSNorm


def norm_of(width, dtype):
    norm = RMSNorm(width, 1e-5).to(dtype)
    norm.weight.data.copy_(torch.randn(width, generator=torch.Generator().manual_seed(1)))
    return norm


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", [(1, 1, 16), (2, 7, 128), (1, 33, 4, 32)])
@torch.inference_mode()
def test_the_norm_is_cast_before_it_is_scaled(shape, dtype):
    norm = norm_of(shape[-1], dtype)
    x = torch.randn(shape, generator=torch.Generator().manual_seed(2)).mul_(30).to(dtype)
    y = x.float()
    scaled = (y * (y.square().mean(-1, keepdim=True) + norm.eps).rsqrt()).to(dtype)
    assert torch.equal(norm(x), scaled * norm.weight)


@torch.inference_mode()
def test_another_order_gives_other_numbers():
    norm, x = norm_of(128, torch.bfloat16), torch.randn(1, 33, 128).bfloat16()
    assert not torch.equal(norm(x), F.rms_norm(x, (128,), norm.weight, norm.eps))
