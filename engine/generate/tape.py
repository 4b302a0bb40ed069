"""Tape: operations of a call, noted as they are done, and done again with no Python around."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, NamedTuple
from weakref import ref

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

UNFORESEEN = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}

Function = Callable[..., Any]


class Operation(NamedTuple):
    """A function, the places of what it takes and the place of what it gives."""

    function: Function
    taken: Sequence[int]
    given: int


class Tape(TorchDispatchMode):
    """Notes what runs inside, operation by operation; to be entered in inference mode.

    Tensors that were there before are read and written where they are, and so is what is seen of
    them: they have places from 0 up. What is made inside is made anew each time; its places are
    below 0. `why` says what keeps the whole from being done again; empty: nothing. A look at a
    tensor by `numpy` or `tolist` goes unseen.
    """

    def __init__(self) -> None:
        super().__init__()
        self.why = ""
        self._operations: list[Operation] = []
        self._fixed: list[Any] = []
        self._made: dict[int, tuple[ref[Tensor], int]] = {}
        self._count = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """False: torch.compile, which takes a second to import, need not know of a tape."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Do an operation and note it."""
        kwargs = kwargs or {}
        values = *args, *kwargs.values()
        taken = [self._place(x) for x in values]
        out = func(*args, **kwargs)
        results = out if isinstance(out, list | tuple) else (out,)
        if not all(isinstance(x, Tensor) for x in results) or UNFORESEEN & set(func.tags):
            if any(isinstance(x, Tensor) for x in values):
                self.why = self.why or f"{func} looks at what a tensor holds"
            return out
        same = next((place for x, place in zip(values, taken, strict=True) if x is out), None)
        seen = same is not None or (min(taken, default=-1) >= 0 and _are_views(args, results))
        if seen and not func._schema.is_mutable:
            return out
        given = self._do(_named(func.op, tuple(kwargs)), taken, same)
        if results is not out:
            self._made[id(out)] = ref(out), given
        else:
            for i, x in enumerate(results):
                self._made[id(x)] = ref(x), self._do(itemgetter(i), [given])
        return out

    def again(self, result: Tensor) -> Callable[[], Tensor]:
        """What does all of it again and gives what is then in the place of `result`."""
        end = self._place(result)
        places, room = self._arranged(end)
        first, values = len(self._fixed), self._fixed + [None] * room
        steps = [
            (function, _picker([places.get(x, x) for x in taken]), places.get(given, given))
            for function, taken, given in self._operations
        ]
        end = places.get(end, end)

        def replay() -> Tensor:
            for function, pick, place in steps:
                values[place] = function(*pick(values))
            found: Tensor = values[end]
            values[first:] = [None] * room
            return found

        return replay

    def _place(self, value: Any) -> int:
        """Where an operand lies."""
        if isinstance(value, Tensor):
            known, place = self._made.get(id(value), (None, 0))
            if known is not None and known() is value:
                return place
        elif isinstance(value, list | tuple) and any(isinstance(x, Tensor) for x in value):
            return self._do(_listed, [self._place(x) for x in value])
        self._fixed.append(value)
        return len(self._fixed) - 1

    def _do(self, function: Function, taken: Sequence[int], given: int | None = None) -> int:
        """Note an operation; where its result lies, a place of its own if none is `given`."""
        if given is None:
            self._count += 1
            given = -self._count
        self._operations.append(Operation(function, taken, given))
        return given

    def _arranged(self, end: int) -> tuple[dict[int, int], int]:
        """Places after the fixed ones, each used again once nobody needs what lies there."""
        last = {given: i for i, (_, _, given) in enumerate(self._operations)}
        last |= {place: i for i, one in enumerate(self._operations) for place in one.taken}
        last[end] = len(self._operations)
        places: dict[int, int] = {}
        free: list[int] = []
        room = 0
        for i, (_, taken, given) in enumerate(self._operations):
            done = {x for x in (*taken, given) if x < 0 and last[x] == i}
            free += [places[x] for x in done - {given}]
            if given < 0 and given not in places:
                if not free:
                    free.append(len(self._fixed) + room)
                    room += 1
                places[given] = free.pop()
            if given in done:
                free.append(places[given])
        return places, room


def _are_views(args: Sequence[Any], results: Sequence[Tensor]) -> bool:
    """Whether `results` show memory of the first of `args`."""
    base = args[0] if args else None
    if not isinstance(base, Tensor) or base.is_mkldnn:
        return False
    memory = base.untyped_storage().data_ptr()
    return all(x.untyped_storage().data_ptr() == memory for x in results)


def _named(function: Function, names: tuple[str, ...]) -> Function:
    """A function whose last operands go by `names`."""
    if not names:
        return function

    def call(*operands: Any) -> Any:
        cut = len(operands) - len(names)
        return function(*operands[:cut], **dict(zip(names, operands[cut:], strict=True)))

    return call


def _listed(*values: Any) -> list[Any]:
    return list(values)


def _picker(places: Sequence[int]) -> Callable[[list[Any]], Sequence[Any]]:
    """What takes values at `places` out of a list."""
    if len(places) > 1:
        return itemgetter(*places)
    start = places[0] if places else 0
    return itemgetter(slice(start, start + len(places)))
