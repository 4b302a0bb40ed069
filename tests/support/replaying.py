"""Capturers for tests: `Replaying` imitates CUDA graphs on a CPU, `Taping` counts tapes.

As with a CUDA graph, a capture does not change memory from outside, a replay repeats the operations
on the same memory, and reading memory that was freed meanwhile is an error.
"""

import weakref

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from engine.generate.capture.capturers import TapeCapturer
from tests.support.counting_device import mapped, tensors_in, unwrapped

FREED = "a replayed operation reads memory that was freed"


class Outside:
    """A weak reference to a tensor from before the capture."""

    def __init__(self, tensor: Tensor) -> None:
        self._known = weakref.ref(tensor)

    def get(self) -> Tensor:
        tensor = self._known()
        assert tensor is not None, FREED
        return tensor


class Tape(TorchDispatchMode):
    """Records each operation with its operands and results."""

    def __init__(self) -> None:
        super().__init__()
        self.calls, self._made, self._before = [], {}, {}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """False, so that torch.compile is not imported, and not asked at every operation."""
        return False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        kept = mapped(self._operand, (args, kwargs))
        out = func(*args, **kwargs)
        inside, results = set(map(memory_id, tensors_in((args, kwargs)))), tensors_in(out)
        self._made |= {id(x): x for x in results}
        fresh = {id(x) for x in results if memory_id(x) not in inside}
        self.calls.append((func, kept, results, fresh))
        return out

    def _operand(self, value):
        if not isinstance(value, Tensor) or id(value) in self._made:
            return value
        if id(value) not in self._before:
            self._before[id(value)] = Outside(value), copy_of(value)
        return self._before[id(value)][0]

    def made_memory(self, tensor: Tensor) -> bool:
        """Whether the memory of a tensor was allocated by a recorded operation."""
        return any(
            id(x) in fresh and memory_id(x) == memory_id(tensor)
            for _, _, results, fresh in self.calls
            for x in results
        )

    def undo(self) -> None:
        """Restore all tensors from outside."""
        for outside, before in self._before.values():
            if before is not None:
                outside.get().copy_(before)
        self._before.clear()

    def replay(self) -> None:
        for func, kept, results, fresh in self.calls:
            args, kwargs = mapped(lambda x: x.get() if isinstance(x, Outside) else x, kept)
            again = tensors_in(func(*args, **kwargs))
            for old, new in zip(results, again, strict=True):
                if id(old) in fresh:
                    old.copy_(new)


class Replaying:
    """A capturer for a CPU that behaves as CudaCapturer does on a GPU."""

    sliding_window, warm_up_steps = True, 64

    def __init__(self, row_multiple: int = 64) -> None:
        self.captured = self.replayed = 0
        self.row_multiple = row_multiple

    def capture(self, call):
        tape = Tape()
        with tape:
            out = call()
        tape.undo()
        for x in out:
            if tape.made_memory(x):
                x.fill_(torch.nan if x.is_floating_point() else -1)
        self.captured += 1

        def replay():
            self.replayed += 1
            tape.replay()
            return out

        tape.replay()
        return out, replay


class Taping(TapeCapturer):
    """The engine's TapeCapturer, with counts."""

    def __init__(self, row_multiple: int = TapeCapturer.row_multiple) -> None:
        self.captured = self.replayed = 0
        self.row_multiple = row_multiple

    def capture(self, call):
        out, again = super().capture(call)
        assert again is not None, "the forward depends on the values of a tensor"
        self.captured += 1

        def replay():
            self.replayed += 1
            return again()

        return out, replay


def memory_id(tensor: Tensor) -> int:
    tensor = unwrapped(tensor)
    return id(tensor) if tensor.is_mkldnn else tensor.untyped_storage().data_ptr()


def copy_of(tensor: Tensor) -> Tensor | None:
    """A copy of a tensor; None for weights, which are not written."""
    weight = isinstance(tensor, nn.Parameter) or tensor.is_mkldnn
    return None if weight else tensor.clone()
