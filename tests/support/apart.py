"""Apart: a device of its own on a CPU, so that what crosses to the host and back can be counted.

Tensors of the device say that they lie on `meta`; what they hold lies in `inner`.
"""

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from engine.core.device import HostCopy

DEVICE = torch.device("meta")
ATEN = torch.ops.aten
LOOKS = {  # operations whose result, or its size, the host waits for
    ATEN._local_scalar_dense, ATEN.nonzero, ATEN.masked_select, ATEN.is_nonzero, ATEN.equal,
    ATEN._unique2, ATEN.unique_consecutive, ATEN.unique_dim, ATEN.bincount,
}  # fmt: skip
TAKEN_APART = {ATEN.to, ATEN.item, ATEN.type_as, ATEN.__and__, ATEN.__or__}


class There(Tensor):
    """A tensor on the device."""

    @staticmethod
    def __new__(cls, inner):
        return Tensor._make_wrapper_subclass(
            cls, inner.shape, strides=inner.stride(), storage_offset=inner.storage_offset(),
            dtype=inner.dtype, device=DEVICE,
        )  # fmt: skip

    def __init__(self, inner) -> None:
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise AssertionError(f"{func} outside the mode")


class Apart(TorchDispatchMode):
    """While it is on, the device exists; `waits` counts what the host waited for.

    Landings arrive in their order: to wait for one is to have waited for all before it.
    """

    def __init__(self, monkeypatch) -> None:
        super().__init__()
        self.waits, self.why = 0, []
        self._sent: list[HostCopy] = []
        self._landed = 0
        send, get, mode = HostCopy.__init__, HostCopy.get, self

        def sent(landing, *tensors) -> None:
            send(landing, *tensors)
            mode._sent.append(landing)

        def got(landing):
            number = 1 + next(i for i, one in enumerate(mode._sent) if one is landing)
            if number > mode._landed:
                mode._landed = number
                mode.wait("landing")
            return get(landing)

        monkeypatch.setattr(HostCopy, "__init__", sent)
        monkeypatch.setattr(HostCopy, "get", got)

    def wait(self, why: str) -> None:
        self.waits += 1
        self.why.append(why)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs, packet = dict(kwargs or {}), func.overloadpacket
        tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        there = any(isinstance(x, There) for x in tensors)
        if packet in TAKEN_APART and func._can_decompose():
            with self:
                return func.decompose(*args, **kwargs)
        target = kwargs.get("device")
        if packet is ATEN._to_copy and target is not None and (target == DEVICE) != there:
            return self._cross(func, args, kwargs, there)
        if target == DEVICE:
            kwargs["device"], there = torch.device("cpu"), True
        if not there:
            return func(*args, **kwargs)
        for x in tensors:
            assert isinstance(x, There) or x.ndim == 0, f"{func} over two devices"
        if packet in LOOKS or (packet in (ATEN.index, ATEN.index_put_) and by_mask(args[1])):
            self.wait(str(packet))
        known = {id(x.inner): x for x in tensors if isinstance(x, There)}
        out = func(*tree_map(inside, args), **tree_map(inside, kwargs))
        return tree_map(lambda x: known[id(x)] if id(x) in known else wrapped(x), out)

    def _cross(self, func, args, kwargs, there: bool):
        if not kwargs.get("non_blocking"):
            self.wait("to the host" if there else "from the host")
        kwargs["device"] = torch.device("cpu")
        out = func(*tree_map(inside, args), **kwargs).clone()
        return out if there else There(out)


def by_mask(indices) -> bool:
    return any(i is not None and i.dtype == torch.bool for i in indices)


def inside(value):
    return value.inner if isinstance(value, There) else value


def wrapped(value):
    return There(value) if isinstance(value, Tensor) else value


@torch.inference_mode()
def moved(model):
    """A model whose weights go to the device, in place."""
    for module in model.modules():
        for name, weight in module._parameters.items():
            if weight is not None:
                module._parameters[name] = There(weight.detach())
    return model
