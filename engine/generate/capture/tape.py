"""Tape: record the torch operations of a call and repeat them without the Python around them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from operator import itemgetter
from types import BuiltinFunctionType, MethodDescriptorType
from typing import Any, NamedTuple
from weakref import ref

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

DATA_DEPENDENT = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}

Function = Callable[..., Any]


class Operation(NamedTuple):
    """A function, the slots of its inputs and the slot of its output."""

    function: Function
    inputs: Sequence[int]
    output: int


class Tape(TorchDispatchMode):
    """Dispatch mode that records every operation run inside it; enter it in inference mode.

    Tensors from outside, and their views, are read and written in place: their slots count up
    from 0. Tensors made inside are made again by each replay: their slots are negative.
    `failure` says why the recording cannot be replayed, empty if it can. Reads by `numpy` or
    `tolist` are not detected.
    """

    def __init__(self) -> None:
        super().__init__()
        self.failure = ""
        self._operations: list[Operation] = []
        self._constants: list[Any] = []
        self._made: dict[int, tuple[ref[Tensor], int]] = {}
        self._made_count = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """False, so that torch.compile is not imported, which takes a second."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Run an operation and record it."""
        kwargs = kwargs or {}
        values = *args, *kwargs.values()
        inputs = [self._slot(x) for x in values]
        function = _torch_function(func)
        try:
            out = function(*args, **kwargs)
        except TypeError:  # the function has other parameters than the operation
            function, out = func.op, func(*args, **kwargs)
        results = out if isinstance(out, list | tuple) else (out,)
        if not all(isinstance(x, Tensor) for x in results) or DATA_DEPENDENT & set(func.tags):
            if any(isinstance(x, Tensor) for x in values):
                self.failure = self.failure or f"{func} depends on the values of a tensor"
            return out
        reused = next((slot for x, slot in zip(values, inputs, strict=True) if x is out), None)
        outside = reused is not None or (min(inputs, default=-1) >= 0 and _are_views(args, results))
        if outside and not func._schema.is_mutable:
            return out
        output = self._record(_with_keywords(function, tuple(kwargs)), inputs, reused)
        if results is not out:
            self._made[id(out)] = ref(out), output
        else:
            for i, x in enumerate(results):
                self._made[id(x)] = ref(x), self._record(itemgetter(i), [output])
        return out

    def make_replay(self, results: Sequence[Tensor]) -> Callable[[], Sequence[Tensor]]:
        """A function that repeats the operations and returns the new values of `results`."""
        ends = [self._slot(result) for result in results]
        assigned, size = self._assign_slots(ends)
        first, values = len(self._constants), self._constants + [None] * size
        steps = [
            (
                function,
                _getter([assigned.get(slot, slot) for slot in inputs]),
                assigned.get(output, output),
            )
            for function, inputs, output in self._operations
        ]
        get_results = _getter([assigned.get(slot, slot) for slot in ends])

        def replay() -> Sequence[Tensor]:
            for function, get, slot in steps:
                values[slot] = function(*get(values))
            found = get_results(values)
            values[first:] = [None] * size
            return found

        return replay

    def _slot(self, value: Any) -> int:
        """The slot of an operand; a value from outside gets a new one."""
        if isinstance(value, Tensor):
            known, slot = self._made.get(id(value), (None, 0))
            if known is not None and known() is value:
                return slot
        elif isinstance(value, list | tuple) and any(isinstance(x, Tensor) for x in value):
            return self._record(lambda *items: list(items), [self._slot(x) for x in value])
        self._constants.append(value)
        return len(self._constants) - 1

    def _record(self, function: Function, inputs: Sequence[int], output: int | None = None) -> int:
        """Append an operation; returns its output slot, a new one if `output` is None."""
        if output is None:
            self._made_count += 1
            output = -self._made_count
        self._operations.append(Operation(function, inputs, output))
        return output

    def _assign_slots(self, ends: Sequence[int]) -> tuple[dict[int, int], int]:
        """Final slots after the constants, reused after the last use of a value, and how many."""
        last_use = {output: i for i, (_, _, output) in enumerate(self._operations)}
        last_use |= {slot: i for i, one in enumerate(self._operations) for slot in one.inputs}
        last_use |= dict.fromkeys(ends, len(self._operations))
        assigned: dict[int, int] = {}
        free: list[int] = []
        size = 0
        for i, (_, inputs, output) in enumerate(self._operations):
            finished = {x for x in (*inputs, output) if x < 0 and last_use[x] == i}
            free += [assigned[x] for x in finished - {output}]
            if output < 0 and output not in assigned:
                if not free:
                    free.append(len(self._constants) + size)
                    size += 1
                assigned[output] = free.pop()
            if output in finished:
                free.append(assigned[output])
        return assigned, size


@cache
def _torch_function(func: Any) -> Function:
    """The function of torch's Python interface for an operation, or else the operation itself.

    A call of the function takes about two thirds of the time of a call of the operation.
    """
    space, _, name = func._schema.name.partition("::")
    homes = (torch, torch.Tensor, torch.nn.functional) if space == "aten" else ()
    found = (getattr(home, name, None) for home in homes)
    built_in = BuiltinFunctionType, MethodDescriptorType
    return next((one for one in found if isinstance(one, built_in)), func.op)


def _are_views(args: Sequence[Any], results: Sequence[Tensor]) -> bool:
    """Whether `results` share the memory of the first of `args`."""
    base = args[0] if args else None
    if not isinstance(base, Tensor) or base.is_mkldnn:
        return False
    memory = base.untyped_storage().data_ptr()
    return all(x.untyped_storage().data_ptr() == memory for x in results)


def _with_keywords(function: Function, names: tuple[str, ...]) -> Function:
    """`function` with its last positional arguments passed as the keywords `names`."""
    if not names:
        return function

    def call(*operands: Any) -> Any:
        split = len(operands) - len(names)
        return function(*operands[:split], **dict(zip(names, operands[split:], strict=True)))

    return call


def _getter(slots: Sequence[int]) -> Callable[[list[Any]], Sequence[Any]]:
    """A function that returns the values at `slots` of a list."""
    if len(slots) > 1:
        return itemgetter(*slots)
    start = slots[0] if slots else 0
    return itemgetter(slice(start, start + len(slots)))
