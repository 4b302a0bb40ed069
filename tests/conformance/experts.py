"""How the engine computes and decodes the cases of models with experts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from engine.cache.base import StepPlan
from engine.cache.forward import forward
from engine.cache.methods.none import NoCache
from engine.cache.store import ActivationStore
from engine.catalog import make_policy, make_unmasker
from engine.core.rows import ALL, Rows
from engine.models.base import ModelAdapter
from tests.conformance import samplers
from tests.conformance.cases import Case
from tests.conformance.recorders import ObservedRecorder
from tests.conformance.runs import Decoded, Setup

# Measured over the recorded forwards on an AMD EPYC with one thread: 1.4e-5 of logits up to 15.
ROUTER_ATOL = 1.4e-4
CALL_KIND = 1  # a denoising call of the whole canvas
ARRAYS = frozenset({
    "prompt", "final_ids", "nfe", "unmask_call", "canvas", "call_kind", "in_pos_mask",
    "logit_call", "logit_pos", "logits", "x_router_layer", "x_router_logits",
    "out_rows",  # left out: the engine computes other rows of logits
})  # fmt: skip
DECODE_SETTINGS: dict[str, Any] = samplers.LENGTHS | {
    "cfg_scale": None,
    "attention_mask": ("ones",),
}
FORWARD_SETTINGS: dict[str, Any] = {"masked": None}


def setup(case: Case) -> Setup:
    """What decodes a case of LLaDA-MoE: LLaDA's loop without a cache."""
    case.check_settings(DECODE_SETTINGS)
    spec = samplers.spec_of(case)
    return Setup(
        adapter=case.load_adapter(),
        spec=spec,
        make_policy=lambda: make_policy(spec),
        make_unmasker=lambda: make_unmasker(spec),
    )


def differences(case: Case, found: Decoded, recorder: ObservedRecorder) -> Iterator[str]:
    """Differences in the canvas, the kinds of calls and the positions fed."""
    golden, canvas = case.arrays, found.state.run.length
    if int(golden["canvas"]) != canvas:
        yield f"canvas of {canvas} positions, recorded {int(golden['canvas'])}"
        return
    if (golden["call_kind"] != CALL_KIND).any():
        yield "call_kind differs"
    fed = np.unpackbits(golden["in_pos_mask"], axis=1)[:, :canvas].astype(bool)
    if not np.array_equal(np.array(recorder.fed), fed):
        yield "fed positions differ"


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


@torch.inference_mode()
def forward_logits(adapter: Any, ids: Tensor, rows: Rows, unread: Any) -> Tensor:
    """Raw logits [n, V] of `rows` of a canvas with the ids [T]."""
    store = ActivationStore(adapter.info, (), 1, len(ids), adapter.dtype, adapter.device)
    found = forward(
        adapter, store, NoCache(), StepPlan(), ids[None], None, rows, unread=unread
    )  # fmt: skip
    return found[0]


def compare_forward(case: Case) -> tuple[list[str], float, float]:
    """Differences of a single forward, and the widest ones of its logits, observed and shipped.

    The observed forward computes all rows; the shipped one leaves out those of the last layer whose
    logits are not recorded.
    """
    case.check_settings(FORWARD_SETTINGS)
    golden, adapter = case.arrays, RouterTap(case.load_adapter())
    places = torch.from_numpy(golden["logit_pos"]).long()
    atol, _ = samplers.tolerance(case)
    errors, wrong = [], []
    whole = forward_logits(adapter, case.prompt, ALL, "full")[places]
    wrong += _router_differences(golden, adapter.logits_of)
    order = places.argsort()
    few = forward_logits(adapter, case.prompt, places[order][None], "drop")
    for name, found, expected in (
        ("", whole, golden["logits"]), ("as shipped: ", few, golden["logits"][order]),
    ):  # fmt: skip
        errors.append(float(np.abs(found.numpy() - expected).max()))
        if not errors[-1] <= atol:
            wrong.append(f"{name}logits differ by {errors[-1]:.3g}")
    return wrong, errors[0], errors[1]


def _router_differences(golden: Any, found: dict[int, Tensor]) -> Iterator[str]:
    layers = golden["x_router_layer"].tolist()
    if layers != sorted(found):
        yield f"routers of the layers {sorted(found)}, recorded {layers}"
        return
    for layer, expected in zip(layers, golden["x_router_logits"], strict=True):
        error = float(np.abs(found[layer][0].numpy() - expected).max())
        if not error <= ROUTER_ATOL:
            yield f"router logits of layer {layer} differ by {error:.3g}"
