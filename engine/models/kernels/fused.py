"""Norm, rotation, gate and drift as one GPU kernel each, where torch launches three to ten.

A step that recomputes 32 rows of an 8B model spends more time on such small operations than a
GPU needs to read the weights. The kernels are for half precision; float32 and float64, in which
runs are compared, and devices without Triton use torch's operations.
"""

from __future__ import annotations

import os
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from engine.models.kernels.choice import SETTING, TORCH

HALF = (torch.float16, torch.bfloat16)


def fused_kernels(x: Tensor) -> Any:
    """The module `triton_kernels` if its kernels can compute `x`, else None.

    None too if SETTING is `torch`.
    """
    if not x.is_cuda or x.dtype not in HALF or os.environ.get(SETTING) == TORCH:
        return None
    return _module()


@cache
def _module() -> Any:
    if find_spec("triton") is None:
        return None
    return import_module("engine.models.kernels.triton_kernels")
