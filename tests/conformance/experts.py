"""How the engine decodes the cases of LLaDA2.0, and the routers of models with experts."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, cast

import numpy as np
from torch import Tensor

from engine.catalog import make_policy, make_unmasker
from engine.config.spec import RunSpec
from engine.core.rows import ALL
from engine.models.base import ModelAdapter
from tests.compat.block_models import Llada2Loop
from tests.conformance import forwards, samplers
from tests.conformance.block_models import adapter_of, whole_call_differences
from tests.conformance.cases import Case
from tests.conformance.recorders import ObservedRecorder
from tests.conformance.runs import Decoded, Setup

# Measured over the recorded forwards on an AMD EPYC with one thread: 1.4e-5 of logits up to 15.
ROUTER_ATOL = 1.4e-4
SETTINGS: dict[str, Any] = samplers.LENGTHS | {
    "threshold": None, "stop_token": None, "eos_early_stop": (True, False), "minimal_topk": None,
}  # fmt: skip
ROUTER_ARRAYS = frozenset(("x_router_layer", "x_router_logits"))


def setup(case: Case) -> Setup:
    """What decodes a case of LLaDA2.0: its loop in blocks, without a cache."""
    case.check_settings(SETTINGS)
    settings, canvas = case.settings, int(case.arrays["canvas"])
    block = settings["block_length"]
    length = -(-settings["gen_length"] // block) * block
    steps = min(settings["steps"], settings["gen_length"] // settings.get("minimal_topk", 1))
    spec = RunSpec(
        gen_length=length, block_length=block, steps=steps * (length // block),
        unmasker="dynamic", knobs={"dynamic.threshold": float(settings["threshold"])},
    )  # fmt: skip
    end = len(case.prompt) + settings["gen_length"]
    stop, early = settings.get("stop_token"), settings.get("eos_early_stop", False)
    loop = partial(Llada2Loop, stop_id=stop, end=end, early=early)
    return Setup(
        adapter_of(case), spec, partial(make_policy, spec), partial(make_unmasker, spec), loop,
        answer=canvas - len(case.prompt),
    )  # fmt: skip


def differences(case: Case, found: Decoded, recorder: ObservedRecorder) -> Iterator[str]:
    """Differences in the canvas, the kinds of calls, the positions fed and where the text ends."""
    yield from whole_call_differences(case, found, recorder)
    state: Any = found.state
    if state.ended_at != len(case.arrays["final_ids"]):
        yield f"the text ends at {state.ended_at}"


class RouterTap:
    """An adapter that keeps the logits [B, n, E] of each layer's router."""

    def __init__(self, inner: ModelAdapter) -> None:
        self._inner = inner
        self.logits_of: dict[int, Tensor] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def mlp(self, layer: int, h: Tensor) -> Tensor:
        """As the inner adapter."""
        block = self._inner.block(layer)
        if self._inner.info.experts_of(layer) is not None:
            self.logits_of[layer] = block.feed_forward.router.logits(block.ff_norm(h))
        return self._inner.mlp(layer, h)


def router_differences(case: Case) -> Iterator[str]:
    """Differences in the router logits of every row and layer, if they were recorded."""
    golden = case.arrays
    if "x_router_layer" not in golden:
        return
    tap = RouterTap(forwards.adapter_of(case))
    forwards.logits(cast(ModelAdapter, tap), case.prompt, ALL)
    layers = golden["x_router_layer"].tolist()
    if layers != sorted(tap.logits_of):
        yield f"routers of the layers {sorted(tap.logits_of)}, recorded {layers}"
        return
    for layer, expected in zip(layers, golden["x_router_logits"], strict=True):
        error = float(np.abs(tap.logits_of[layer][0].cpu().numpy() - expected).max())
        if not error <= ROUTER_ATOL:
            yield f"router logits of layer {layer} differ by {error:.3g}"
