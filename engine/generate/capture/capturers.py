"""Capturers: make a call repeatable, as a CUDA graph on a GPU or as a tape on a CPU."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor

from engine.core.device import capture_stream
from engine.core.variables import on_zero
from engine.generate.capture.tape import Tape
from engine.models.base import ModelAdapter, has_hooks
from engine.models.kernels.linear import ROW_MULTIPLE, without_row_padding

Call = Callable[[], Sequence[Tensor]]

WARM_UP_STEPS = 3  # enough to capture the most frequent kind of step


class CaptureError(RuntimeError):
    """A call could not be captured, and none of it took effect."""


class Capturer(Protocol):
    """Makes a call repeatable.

    Index rows are padded to a multiple of `row_multiple`, so that fewer shapes occur. With
    `sliding_window` a window of rows is passed as an index, so that one capture serves all windows
    of a size. `warm_up_steps` is the number of steps to run before a timed run.
    """

    row_multiple: int
    sliding_window: bool
    warm_up_steps: int

    def capture(self, call: Call) -> tuple[Sequence[Tensor], Call | None]:
        """Run `call`; returns its results, and a function that repeats it or None if it cannot be.

        Raises CaptureError.
        """


class CudaCapturer:
    """CUDA graphs that share a memory pool, which is freed with the last of them."""

    row_multiple, sliding_window, warm_up_steps = 64, True, 64

    def __init__(self, device: torch.device) -> None:
        self._device, self._pool = device, torch.cuda.graph_pool_handle()

    def capture(self, call: Call) -> tuple[Sequence[Tensor], Call | None]:
        """Record the kernels of the call, then launch them; replays return the same tensors."""
        graph = torch.cuda.CUDAGraph()
        mode = "thread_local"  # other threads may use the GPU
        with torch.cuda.device(self._device):
            stream, before = capture_stream(self._device), torch.cuda.current_stream(self._device)
            try:
                with torch.cuda.graph(graph, self._pool, stream, capture_error_mode=mode):
                    out = call()
            except Exception as error:  # out of memory, or an operation that cannot be captured
                torch.cuda.set_stream(before)  # torch stays on its own if it cannot end the capture
                raise CaptureError(str(error)) from error

        def replay() -> Sequence[Tensor]:
            graph.replay()
            return out

        return replay(), replay


class TapeCapturer:
    """Tapes of CPU operations; each replay allocates its tensors again."""

    row_multiple, sliding_window, warm_up_steps = ROW_MULTIPLE, False, WARM_UP_STEPS

    def capture(self, call: Call) -> tuple[Sequence[Tensor], Call | None]:
        """Run the call on a tape."""
        with Tape() as tape:
            out = without_row_padding(call)
        return out, None if tape.failure else tape.make_replay(out)


def make_capturer(adapter: ModelAdapter, guided: bool) -> Capturer | None:
    """The capturer of a run; None if its forwards cannot be captured.

    `guided`: the unmasker runs another model between the forwards. With experts, the operations of
    a forward depend on which ones its rows choose.
    """
    one_process_a_run = on_zero(os.environ)  # which would capture again in each
    if guided or has_hooks(adapter) or one_process_a_run or adapter.info.experts is not None:
        return None
    if adapter.device.type == "cuda":
        return CudaCapturer(adapter.device)
    return TapeCapturer() if adapter.device.type == "cpu" else None
