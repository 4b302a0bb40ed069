"""host: crossings between a run's device and the host; of them only Landing.get waits."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def upload(values: np.ndarray, device: torch.device) -> Tensor:
    """`values` on a device, by way of pinned memory, so that the host goes on at once.

    On a CPU it shares the memory of `values`.
    """
    tensor = torch.from_numpy(values)
    if device.type == "cpu":
        return tensor
    if device.type == "cuda":
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)


class Landing:
    """Tensors on their way to the host, all from one device."""

    def __init__(self, *tensors: Tensor) -> None:
        self._parts = [tensor.to("cpu", non_blocking=True) for tensor in tensors]
        self._arrival: torch.cuda.Event | None = None
        device = tensors[0].device
        if device.type == "cuda":
            self._arrival = torch.cuda.Event()
            self._arrival.record(torch.cuda.current_stream(device))

    def get(self) -> tuple[np.ndarray, ...]:
        """The arrays, once they are there; read only, a CPU's are those of the tensors."""
        if self._arrival is not None and not self._arrival.query():
            self._arrival.synchronize()
        return tuple(part.numpy() for part in self._parts)
