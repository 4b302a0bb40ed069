"""FLOPs as torch counts them, to compare the engine's count with."""

from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry


class TorchFlops(TorchDispatchMode):
    """Counts FLOPs by torch's formulas.

    FlopCounterMode also tells modules apart, which takes half as long again.
    """

    def __init__(self) -> None:
        super().__init__()
        self.total = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func._can_decompose():
            with self:
                return func.decompose(*args, **kwargs)
        out = func(*args, **kwargs)
        formula = flop_registry.get(func.overloadpacket)
        if formula is not None:
            self.total += formula(*args, **kwargs, out_val=out)
        return out


def counted(steps, most):
    """At most so many events of a run, each with the FLOPs that torch counts in its step."""
    for _ in range(most):
        with sdpa_kernel(SDPBackend.MATH), TorchFlops() as counter:
            event = next(steps)
        assert int(event.flops.sum()) == counter.total, "the engine counts other FLOPs than torch"
        yield event, counter.total
