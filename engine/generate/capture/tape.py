"""Tape: record the torch operations of a call and repeat them without the Python around them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import cache
from operator import itemgetter
from types import BuiltinFunctionType, MethodDescriptorType
from typing import Any, NamedTuple
from weakref import ref

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from engine.models.attention import OWN_ATTENTION, own_attention

DATA_DEPENDENT = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}

Function = Callable[..., Any]


Operation = tuple[Function, Sequence[int], int]  # with the slots of its inputs and of its output


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
        self._views: dict[Hashable, int] = {}  # the slots of views, by the calls that made them

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """False, so that torch.compile is not imported, which takes a second."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Run an operation and record it."""
        values = (*args, *kwargs.values()) if kwargs else args
        inputs = list(map(self._slot, values))
        function, mutable, dependent, may_be_views = _facts(func)
        try:
            out = function(*args, **kwargs) if kwargs else function(*args)
        except TypeError:  # the function has other parameters than the operation
            function, out = func.op, func(*args, **(kwargs or {}))
        single = isinstance(out, Tensor)
        results = (out,) if single else out
        if dependent or not (single or _are_tensors(out)):
            if any(isinstance(x, Tensor) for x in values):
                self.failure = self.failure or f"{func} depends on the values of a tensor"
            return out
        reused = next((s for x, s in zip(values, inputs, strict=True) if x is out), None)
        if mutable and torch.Tag.inplace_view in func.tags:
            self._views.clear()
        if not mutable and reused is not None:
            return out
        if may_be_views and _are_views(args, results):
            call = func, *(kwargs or ()), *map(_operand, values, inputs)
            if min(inputs, default=-1) >= 0 or (single and self._is_known(call, out)):
                return out
        if kwargs:
            function = _with_keywords(function, tuple(kwargs))
        output = self._record(function, inputs, reused)
        if single:
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
                _getter([assigned[slot] if slot < 0 else slot for slot in inputs]),
                assigned[output] if output < 0 else output,
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

    def _is_known(self, call: Hashable, view: Tensor) -> bool:
        """Whether an equal call was recorded, whose slot `view` gets; else the next slot is its."""
        following = -self._made_count - 1
        slot = self._views.setdefault(call, following)
        if slot != following:
            self._made[id(view)] = ref(view), slot
        return slot != following

    def _record(self, function: Function, inputs: Sequence[int], output: int | None = None) -> int:
        """Append an operation; returns its output slot, a new one if `output` is None."""
        if output is None:
            self._made_count += 1
            output = -self._made_count
        self._operations.append((function, inputs, output))
        return output

    def _assign_slots(self, ends: Sequence[int]) -> tuple[dict[int, int], int]:
        """Final slots after the constants, reused after the last use of a value, and how many."""
        last_uses: list[list[int]] = []  # the slots that no later operation uses, in reverse order
        seen = set(ends)
        for _, inputs, output in reversed(self._operations):
            last = [slot for slot in {output, *inputs} if slot < 0 and slot not in seen]
            seen.update(last)
            last_uses.append(last)
        assigned: dict[int, int] = {}
        free: list[int] = []
        size = 0
        for (_, _, output), last in zip(self._operations, reversed(last_uses), strict=True):
            free += [assigned[slot] for slot in last if slot != output]
            if output < 0 and output not in assigned:
                if not free:
                    free.append(len(self._constants) + size)
                    size += 1
                assigned[output] = free.pop()
            if output in last:
                free.append(assigned[output])
        return assigned, size


class _Facts(NamedTuple):
    """How an operation is repeated, and what its schema says of it."""

    function: Function
    mutable: bool
    dependent: bool  # on the values of a tensor
    may_be_views: bool  # its results, of the first operand


@cache
def _facts(func: Any) -> _Facts:
    schema = func._schema
    aliases = [result.alias_info for result in schema.returns]
    views = any(one is not None and not one.is_write for one in aliases)
    return _Facts(
        _torch_function(func), schema.is_mutable, bool(DATA_DEPENDENT & set(func.tags)), views
    )


def _operand(value: Any, slot: int) -> Hashable:
    """What identifies an operand: the slot of a tensor, else the value."""
    return slot if isinstance(value, Tensor) else repr(value)


def _are_tensors(out: Any) -> bool:
    return isinstance(out, list | tuple) and all(isinstance(x, Tensor) for x in out)


@cache
def _torch_function(func: Any) -> Function:
    """The function of torch's Python interface for an operation, or else the operation itself.

    A call of the function takes about two thirds of the time of a call of the operation. For the
    attention of this package it is the function of the operation.
    """
    if func is OWN_ATTENTION.default:
        return own_attention
    space, _, name = func._schema.name.partition("::")
    homes: tuple[Any, ...] = (torch, torch.Tensor, torch.nn.functional) if space == "aten" else ()
    if name.startswith("linalg_"):
        homes, name = (torch.linalg,), name.removeprefix("linalg_")
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
