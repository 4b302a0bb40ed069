"""Replaying: what CUDA graphs do, on a CPU: the same operations on the same memory, no Python.

A capture leaves no trace in memory outside; memory that is gone when it is replayed is an error.
Taping is what the engine does on a CPU, counted.
"""

import weakref

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from engine.generate.capture.capturers import TapeCapturer

GONE = "a replayed operation reads memory that was given back"


class Outside:
    """A tensor that was there before the capture, not kept alive by it."""

    def __init__(self, tensor: Tensor) -> None:
        self._known = weakref.ref(tensor)

    def get(self) -> Tensor:
        tensor = self._known()
        assert tensor is not None, GONE
        return tensor


class Tape(TorchDispatchMode):
    """Notes each operation, with its operands as they are and where its results lie."""

    def __init__(self) -> None:
        super().__init__()
        self.calls, self._made, self._before = [], {}, {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        kept = tree_map(self._operand, (args, kwargs))
        out = func(*args, **kwargs)
        inside = {place(x) for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)}
        fresh = [x for x in tree_leaves(out) if isinstance(x, Tensor) and place(x) not in inside]
        self._made |= {id(x): x for x in tree_leaves(out) if isinstance(x, Tensor)}
        self.calls.append((func, kept, out, {id(x) for x in fresh}))
        return out

    def _operand(self, value):
        if not isinstance(value, Tensor) or id(value) in self._made:
            return value
        if id(value) not in self._before:
            self._before[id(value)] = Outside(value), saved(value)
        return self._before[id(value)][0]

    def undo(self) -> None:
        """Everything outside as it was before."""
        for outside, before in self._before.values():
            if before is not None:
                outside.get().copy_(before)
        self._before.clear()

    def replay(self) -> None:
        for func, kept, out, fresh in self.calls:
            args, kwargs = tree_map(lambda x: x.get() if isinstance(x, Outside) else x, kept)
            again = func(*args, **kwargs)
            for old, new in zip(tree_leaves(out), tree_leaves(again), strict=True):
                if isinstance(old, Tensor) and id(old) in fresh:
                    old.copy_(new)


class Replaying:
    """A capturer for a CPU that does as one for a GPU does."""

    sliding_window, warm_up_steps = True, 64

    def __init__(self, row_multiple: int = 64) -> None:
        self.captured = self.replayed = 0
        self.row_multiple = row_multiple

    def capture(self, call):
        tape = Tape()
        with tape:
            out = call()
        tape.undo()
        out.fill_(torch.nan)
        self.captured += 1

        def replay() -> Tensor:
            self.replayed += 1
            tape.replay()
            return out

        tape.replay()
        return out, replay


class Taping(TapeCapturer):
    """The engine's own capturer for a CPU."""

    def __init__(self, row_multiple: int = TapeCapturer.row_multiple) -> None:
        self.captured = self.replayed = 0
        self.row_multiple = row_multiple

    def capture(self, call):
        out, again = super().capture(call)
        assert again is not None, "it looks at what a tensor holds"
        self.captured += 1

        def replay() -> Tensor:
            self.replayed += 1
            return again()

        return out, replay


def place(tensor: Tensor) -> int:
    return id(tensor) if tensor.is_mkldnn else tensor.untyped_storage().data_ptr()


def saved(tensor: Tensor) -> Tensor | None:
    """A copy of what may be written; weights are not."""
    weight = isinstance(tensor, nn.Parameter) or tensor.is_mkldnn
    return None if weight else tensor.clone()
