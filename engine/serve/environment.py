"""What a figure was measured on: machine, versions and the settings that touch speed."""

from __future__ import annotations

import os
import platform
from typing import Any

import torch

from engine.config.spec import RunSpec
from engine.core.device import device_name
from engine.core.variables import only_torch_kernels
from engine.models.kernels.choice import TORCH
from engine.models.loading.memory_estimate import free_bytes, main_device


def describe(spec: RunSpec, checkpoint: str) -> dict[str, Any]:
    """Device, number format, threads, versions, seed, recorder level and checkpoint digest.

    With `kernels` if only torch's routines are used.
    """
    main = main_device(spec.device, free_bytes())
    found: dict[str, Any] = {
        "device": spec.device,
        "device_name": device_name(main),
        "dtype": spec.dtype,
        "threads": torch.get_num_threads(),
        "cores": os.cpu_count(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "system": platform.system(),
        "seed": spec.seed,
        "record": spec.record,
        "checkpoint": checkpoint,
    }
    return found | ({"kernels": TORCH} if only_torch_kernels(os.environ) else {})
