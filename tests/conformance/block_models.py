"""How the engine decodes the cases of SDAR and Fast-dLLM v2, and what is compared."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import numpy as np
from torch import Tensor

from engine.cache.base import CachePolicy, StepPlan, StepView
from engine.cache.methods.frozen import SubBlock
from engine.catalog import make_policy, make_unmasker
from engine.config.spec import RunSpec
from engine.generate.job import Job
from engine.generate.loop import Denoiser
from engine.models.base import ModelAdapter
from tests.compat.block_models import (
    BatchSampleLoop,
    CarriedSubBlock,
    GenerateLoop,
    SdarLoop,
    ranked_by_topk,
)
from tests.conformance.cases import Case
from tests.conformance.recorders import Arrays, ObservedRecorder
from tests.conformance.runs import Decoded, Setup

PREFILL, WHOLE, PART, COMMIT = range(4)  # call_kind
SETTINGS: dict[str, dict[str, tuple[Any, ...] | None]] = {
    "sdar_decode": {
        "gen_length": None, "block_length": None, "denoising_steps": None, "temperature": None,
        "remasking_strategy": (
            "low_confidence_static", "low_confidence_dynamic", "sequential", "entropy_bounded",
        ),
        "confidence_threshold": None, "eb_threshold": None, "top_k": None, "top_p": None,
        "stop_token": None, "sampler": ("jetengine",),
    },
    "fdv2_decode": {
        "gen_length": None, "block_length": None, "small_block_size": None, "threshold": None,
        "sampler": ("batch_sample", "generate"), "use_block_cache": None, "stop_token": None,
    },
}  # fmt: skip
ARRAYS = frozenset((
    "prompt", "final_ids", "nfe", "unmask_call", "canvas", "call_kind", "in_pos_mask", "out_rows",
    "logit_call", "logit_pos", "logits",
))  # fmt: skip


def tolerance(case: Case) -> tuple[float, float]:
    """Measured on the peers: their cached and full forwards differ by up to 1.1e-4."""
    return 1e-2, 1e-4


def setup(case: Case) -> Setup:
    """What decodes a case; raises UnknownCaseError for settings that it does not know."""
    case.check_settings(SETTINGS[case.method])
    settings, canvas = case.settings, int(case.arrays["canvas"])
    block, stop = settings["block_length"], settings.get("stop_token")
    loop: Callable[[Job], Denoiser]
    if case.method == "sdar_decode":
        rule, cache = _sdar_rule(case), {"cache": "frozen", "knobs": {}}
        loop = partial(SdarLoop, stop_id=stop, temperature=settings.get("temperature", 1))
    else:
        rule, cache = _fdv2_rule(case), _fdv2_cache(case)
        kind = {"batch_sample": BatchSampleLoop, "generate": GenerateLoop}[settings["sampler"]]
        loop = partial(kind, stop_id=stop, length=canvas)
    length = -(-settings["gen_length"] // block) * block
    steps = settings.get("denoising_steps", block)
    spec = RunSpec(
        gen_length=length, block_length=block, steps=steps * (length // block),
        unmasker=rule["unmasker"], cache=cache["cache"], knobs=rule["knobs"] | cache["knobs"],
    )  # fmt: skip
    return Setup(
        adapter=adapter_of(case),
        spec=spec,
        make_policy=lambda: _policy(case, spec),
        make_unmasker=lambda: ranked_by_topk(make_unmasker(spec)),
        make_denoiser=loop,
        answer=-(-canvas // block) * block - len(case.prompt),
    )


def adapter_of(case: Case) -> ModelAdapter:
    """The model with the case's block length, and no stop token: the released loops look for it."""
    adapter = case.load_adapter().with_block_size(case.settings["block_length"])
    adapter.info = replace(adapter.info, stop_ids=())
    return adapter


def _sdar_rule(case: Case) -> dict[str, Any]:
    """Unmasker and knobs of a case of SDAR."""
    settings = case.settings
    kept = {name: settings[name] for name in ("top_k", "top_p") if name in settings}
    kept = {name: float(value) if name == "top_p" else value for name, value in kept.items()}
    strategy = settings["remasking_strategy"]
    if strategy == "sequential":
        return {"unmasker": "sequential", "knobs": {}}
    if strategy == "entropy_bounded":
        kept["gamma"] = float(settings["eb_threshold"])
        return {"unmasker": strategy, "knobs": _owned(strategy, kept)}
    if strategy == "low_confidence_static" and not kept:
        return {"unmasker": "quota", "knobs": {}}
    static = strategy == "low_confidence_static"
    kept["threshold"] = 1.0 if static else float(settings["confidence_threshold"])
    return {"unmasker": "dynamic", "knobs": _owned("dynamic", kept)}


def _fdv2_rule(case: Case) -> dict[str, Any]:
    """Unmasker and knobs of a case of Fast-dLLM v2."""
    knobs = {
        "threshold": float(case.settings["threshold"]),
        "sub_block": case.settings["small_block_size"],
    }
    return {"unmasker": "fast_dllm_v2", "knobs": _owned("fast_dllm_v2", knobs)}


def _fdv2_cache(case: Case) -> dict[str, Any]:
    """Cache and knobs of a case of Fast-dLLM v2."""
    if not case.settings.get("use_block_cache", False):
        return {"cache": "frozen", "knobs": {}}
    return {"cache": "sub_block", "knobs": {"sub_block.size": case.settings["small_block_size"]}}


def _policy(case: Case, spec: RunSpec) -> CachePolicy:
    """The cache of a case as its authors released it."""
    policy = make_policy(spec)
    if isinstance(policy, SubBlock) and case.settings["sampler"] == "generate":
        return CarriedSubBlock(**asdict(policy))
    return policy


def _owned(method: str, knobs: dict[str, Any]) -> dict[str, Any]:
    return {f"{method}.{name}": value for name, value in knobs.items()}


class BlockRecorder(ObservedRecorder):
    """Also notes the kind of each call."""

    def __init__(self, golden: Arrays) -> None:
        super().__init__(golden)
        self.kinds: list[int] = []

    def extra_rows(self, view: StepView, plan: StepPlan) -> Tensor | None:
        """As the base class."""
        assert isinstance(plan.rows, slice)
        if plan.rows.stop <= view.block.start:
            self.kinds.append(COMMIT if self.kinds else PREFILL)
        else:
            whole = plan.rows.stop - plan.rows.start >= view.run.block_length
            self.kinds.append(WHOLE if whole else PART)
        return super().extra_rows(view, plan)


def differences(case: Case, found: Decoded, recorder: BlockRecorder) -> Iterator[str]:
    """Differences in the positions fed and in the kinds of the calls."""
    golden, length = case.arrays, int(case.arrays["canvas"])
    fed = np.stack(recorder.fed)[:, :length]
    recorded = np.unpackbits(golden["in_pos_mask"], axis=1, count=length).astype(bool)
    if fed.shape != recorded.shape or not np.array_equal(fed, recorded):
        yield "fed positions differ"
    if not np.array_equal(fed.sum(1), golden["out_rows"]):
        yield "out_rows differ"
    ended = getattr(found.state, "ended_at", None)
    if ended is not None and ended != len(golden["final_ids"]):
        yield f"the text ends at {ended}"
    if not np.array_equal(recorder.kinds, golden["call_kind"]):
        yield "call_kind differs"


def whole_call_differences(case: Case, found: Decoded, recorder: ObservedRecorder) -> Iterator[str]:
    """Differences in the canvas, the kinds of calls and the positions fed, without a cache."""
    golden, canvas = case.arrays, found.state.run.length
    if int(golden["canvas"]) != canvas:
        yield f"canvas of {canvas} positions, recorded {int(golden['canvas'])}"
        return
    if (golden["call_kind"] != WHOLE).any():
        yield "call_kind differs"
    fed = np.stack(recorder.fed)[:, :canvas]
    recorded = np.unpackbits(golden["in_pos_mask"], axis=1, count=canvas).astype(bool)
    if not np.array_equal(fed, recorded):
        yield "fed positions differ"
