"""Capturer: what makes a part of a forward repeatable, on a GPU or on a CPU."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from engine.core.zero_gpu import on_zero
from engine.generate.tape import Tape
from engine.models.base import ModelAdapter
from engine.models.linear import STRIDE, recurring

Replay = Callable[[], Tensor]

WARM_UP_STEPS = 3  # of the kind that is met most, one is captured among them


class NotCaptured(RuntimeError):
    """A call could not be captured, and nothing of it was done."""


class Capturer(Protocol):
    """Makes a call repeatable.

    Index rows are padded to a multiple of `bucket`, so that many calls are alike; `sliding_window` says
    that a window of rows is given as an index, so that one call serves windows of one size.
    `warm_up` is how many steps to take before a run that is timed.
    """

    bucket: int
    sliding_window: bool
    warm_up: int

    def capture(self, call: Callable[[], Tensor]) -> tuple[Tensor, Replay | None]:
        """What `call` gives, its work done, and what does that again; None: it cannot be.

        Raises NotCaptured.
        """


class CudaCapturer:
    """CUDA graphs that share one pool of memory, which goes when the last of them does."""

    bucket, sliding_window, warm_up = 64, True, 64

    def __init__(self, device: torch.device) -> None:
        self._device, self._pool = device, torch.cuda.graph_pool_handle()

    def capture(self, call: Callable[[], Tensor]) -> tuple[Tensor, Replay | None]:
        """Record the call's kernels, then launch them; each replay gives the same tensor."""
        graph = torch.cuda.CUDAGraph()
        try:
            with (
                torch.cuda.device(self._device),
                torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"),
            ):
                out = call()
        except RuntimeError as error:  # out of memory, or an operation that cannot be captured
            raise NotCaptured(str(error)) from error

        def replay() -> Tensor:
            graph.replay()
            return out

        return replay(), replay


class TapeCapturer:
    """Tapes of a CPU's operations, each replay of which makes its tensors anew."""

    bucket, sliding_window, warm_up = STRIDE, False, WARM_UP_STEPS

    def capture(self, call: Callable[[], Tensor]) -> tuple[Tensor, Replay | None]:
        """Do the call on a tape."""
        with Tape() as tape:
            out = recurring(call)
        return out, None if tape.why else tape.again(out)


def why_eager(adapter: ModelAdapter, listens: bool, guided: bool) -> str:
    """Why a run's forwards cannot be captured; empty where they can.

    `listens` says that a recorder follows the forward, `guided` that another model runs between.
    """
    if adapter.device.type not in ("cpu", "cuda"):
        return f"forwards are captured on cpu and cuda, the model lies on {adapter.device.type}"
    if on_zero(os.environ):
        return "on ZeroGPU each run has a process of its own, which would capture anew"
    if any(hasattr(module, "_hf_hook") for module in adapter.modules()):
        return "some weights lie elsewhere and are fetched when they are used"
    if listens:
        return "a recorder follows the forward"
    return "another model runs between the forwards" if guided else ""


def capturer_of(adapter: ModelAdapter, listens: bool, guided: bool) -> Capturer | None:
    """What captures a run's forwards; None where they cannot be (see `why_eager`)."""
    if why_eager(adapter, listens, guided):
        return None
    return TapeCapturer() if adapter.device.type == "cpu" else CudaCapturer(adapter.device)
