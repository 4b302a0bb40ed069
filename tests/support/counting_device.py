"""CountingDevice: a simulated device on a CPU that counts how often the host waits for it.

Its tensors report the device `meta`; their values are CPU tensors in `inner`.
"""

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from engine.core.device import HostCopy

DEVICE = torch.device("meta")
ATEN = torch.ops.aten
WAITING = {  # the host waits for the result, or for its size
    ATEN._local_scalar_dense, ATEN.nonzero, ATEN.masked_select, ATEN.is_nonzero, ATEN.equal,
    ATEN._unique2, ATEN.unique_consecutive, ATEN.unique_dim, ATEN.bincount,
}  # fmt: skip
DECOMPOSED = {ATEN.to, ATEN.item, ATEN.type_as, ATEN.__and__, ATEN.__or__}


class DeviceTensor(Tensor):
    """A tensor on the simulated device."""

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
        raise AssertionError(f"{func} outside of CountingDevice")


class CountingDevice(TorchDispatchMode):
    """Context manager in which the device exists; `waits` counts the waits of the host.

    Host copies arrive in order, so that a wait for one is a wait for all before it.
    """

    def __init__(self, monkeypatch) -> None:
        super().__init__()
        self.waits, self.why = 0, []
        self._sent: list[HostCopy] = []
        self._arrived = 0
        send, get, mode = HostCopy.__init__, HostCopy.get, self

        def sent(copy, *tensors) -> None:
            send(copy, *tensors)
            mode._sent.append(copy)

        def got(copy):
            number = 1 + next(i for i, one in enumerate(mode._sent) if one is copy)
            if number > mode._arrived:
                mode._arrived = number
                mode.wait("host copy")
            return get(copy)

        monkeypatch.setattr(HostCopy, "__init__", sent)
        monkeypatch.setattr(HostCopy, "get", got)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """False, so that torch.compile is not imported, and not asked at every operation."""
        return False

    def wait(self, why: str) -> None:
        self.waits += 1
        self.why.append(why)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs, packet = dict(kwargs or {}), func.overloadpacket
        tensors = tensors_in((args, kwargs))
        on_device = any(isinstance(x, DeviceTensor) for x in tensors)
        if packet in DECOMPOSED and func._can_decompose():
            with self:
                return func.decompose(*args, **kwargs)
        target = kwargs.get("device")
        if packet is ATEN._to_copy and target is not None and (target == DEVICE) != on_device:
            return self._cross(func, args, kwargs, on_device)
        if target == DEVICE:
            kwargs["device"], on_device = torch.device("cpu"), True
        if not on_device:
            return func(*args, **kwargs)
        for x in tensors:
            assert isinstance(x, DeviceTensor) or x.ndim == 0, f"{func} over two devices"
        if packet in WAITING or (packet in (ATEN.index, ATEN.index_put_) and has_mask(args[1])):
            self.wait(str(packet))
        known = {id(x.inner): x for x in tensors if isinstance(x, DeviceTensor)}
        out = func(*mapped(unwrapped, args), **mapped(unwrapped, kwargs))
        return mapped(lambda x: known[id(x)] if id(x) in known else wrapped(x), out)

    def _cross(self, func, args, kwargs, on_device: bool):
        if not kwargs.get("non_blocking"):
            self.wait("to the host" if on_device else "from the host")
        kwargs["device"] = torch.device("cpu")
        out = func(*mapped(unwrapped, args), **kwargs).clone()
        return out if on_device else DeviceTensor(out)


def mapped(function, value):
    """`function` of every operand in lists, tuples and dicts: a fifth of the time of torch's."""
    if isinstance(value, dict):
        return {name: mapped(function, one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return type(value)([mapped(function, one) for one in value])
    return function(value)


def tensors_in(value) -> list[Tensor]:
    """The tensors among the operands in lists, tuples and dicts."""
    found = []
    mapped(lambda one: found.append(one) if isinstance(one, Tensor) else None, value)
    return found


def has_mask(indices) -> bool:
    return any(i is not None and i.dtype == torch.bool for i in indices)


def unwrapped(value):
    return value.inner if isinstance(value, DeviceTensor) else value


def wrapped(value):
    return DeviceTensor(value) if isinstance(value, Tensor) else value


@torch.inference_mode()
def to_device(model):
    """Move the weights of a model to the device, in place."""
    for module in model.modules():
        for name, weight in module._parameters.items():
            if weight is not None:
                module._parameters[name] = DeviceTensor(weight.detach())
    return model
