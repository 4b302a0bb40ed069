"""FLOPs as torch counts them, to compare the engine's count with."""

from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode


def counted(steps, most):
    """At most so many events of a run, each with the FLOPs that torch counts in its step."""
    for _ in range(most):
        with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
            event = next(steps)
        flops = counter.get_total_flops()
        assert int(event.flops.sum()) == flops, "the engine counts other FLOPs than torch"
        yield event, flops
