"""estimate: FLOPs, memory and time of a run on a known model, from its config alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from engine.cache.base import CachePolicy, RunInfo
from engine.catalog import check_methods, derive_plan, make_policy
from engine.config.spec import MAX_LENGTH, RunSpec
from engine.core.events import PARTS, SITES, StepEvent
from engine.estimate import assumptions as assumed
from engine.estimate.assumptions import Assumptions
from engine.estimate.devices import (
    ASSUMED,
    GPUS,
    ROOFLINE,
    THIS_MACHINE,
    DeviceRates,
    step_seconds,
    total_bytes,
)
from engine.estimate.machine_rates import measure_this_machine
from engine.estimate.published import nearest_figure
from engine.estimate.shape_model import ShapeAdapter
from engine.estimate.shape_run import ShapeDenoiser
from engine.estimate.work import WorkCounter
from engine.generate.job import Job
from engine.generate.loop import denoise
from engine.models.base import ModelInfo
from engine.models.loading.families import adapter_class
from engine.models.loading.memory_estimate import (
    active_parameters,
    dtype_of,
    gigabytes,
    run_bytes,
    weights_bytes,
)
from engine.models.loading.random_weights import is_random_model, random_model_config
from engine.models.loading.registry import REGISTERED
from engine.trace.metrics import recomputed_share

MAX_PROMPT_TOKENS = 131_072
# Of a simulated run: the longest one with guidance on a model of 48 layers. Each takes up to 0.6 ms
# (d2Cache).
MAX_LAYER_FORWARDS = 2 * MAX_LENGTH * 48


@dataclass(frozen=True)
class Target:
    """Where a run is estimated: the model's name and sizes, and the tokens of prompt and suffix.

    `suffix_tokens` 0 of a spec with a suffix: their number is not known. `known_length` False:
    `prompt_tokens` stand for a prompt whose number of tokens is not known.
    """

    model: str
    info: ModelInfo
    prompt_tokens: int
    suffix_tokens: int = 0
    known_length: bool = True


@dataclass(frozen=True)
class Simulated:
    """The steps of a run on a model without weights, and the work of each of them."""

    events: list[StepEvent]
    work: list[WorkCounter]
    cache_bytes: int

    @property
    def flops(self) -> int:
        """FLOPs of the run."""
        return sum(int(event.flops.sum()) for event in self.events)

    @property
    def recomputed(self) -> float:
        """The share of token-layers recomputed (engine.trace.metrics.recomputed_share)."""
        return recomputed_in(self.events)

    @property
    def logit_rows(self) -> int:
        """The most rows whose logits a forward gives; some rules propose beyond the block."""
        info, head = self.work[0].info, PARTS.index("head")
        heads = [int(event.flops[head]) // event.forwards for event in self.events]
        return max(heads) // (2 * info.d_model * info.vocab_size)


def recomputed_in(events: Sequence[StepEvent]) -> float:
    """The share of token-layers recomputed in the steps of a whole run."""
    fills = sum(not event.rows_plain for event in events)
    return recomputed_share(sum(event.recomputed for event in events), len(events), fills)


def known_model(name: str, found: ModelInfo | None = None) -> ModelInfo:
    """Sizes of a listed model or of a shape such as `llada:layers=4,d=64`, or those `found`.

    Raises ValueError naming `model` and the known ones.
    """
    if found is not None:
        return found
    card = REGISTERED.get(name)
    if card is not None and card.config:
        return adapter_class(card.config).read_info(card.config)
    if is_random_model(name):
        config = random_model_config(name)
        return adapter_class(config).read_info(config)
    known = ", ".join(name for name, card in REGISTERED.items() if card.config)
    raise ValueError(
        f"model: the sizes of {name!r} are not known; choose from {known}, a model on this "
        "machine, or a shape such as llada:layers=4,d=64"
    )


def known_device(name: str, info: ModelInfo, dtype: torch.dtype) -> DeviceRates:
    """A published GPU, or this machine, measured. Raises ValueError naming `device`."""
    if name == THIS_MACHINE:
        return measure_this_machine(info, dtype)
    if name not in GPUS:
        raise ValueError(
            f"device: no rates of {name!r} are known; choose from "
            f"{', '.join((*GPUS, THIS_MACHINE))}"
        )
    return GPUS[name].at(dtype)


def layer_forwards(spec: RunSpec, info: ModelInfo) -> int:
    """The layers of a model times the most forwards of a run, each branch of guidance counted."""
    return info.layers * derive_plan(spec)[0].max_forwards * (2 if spec.cfg_scale else 1)


def simulate(spec: RunSpec, target: Target, given: Assumptions) -> Simulated:
    """Take the steps of a run on a model without weights.

    `given` is complete (assumptions.complete). Raises ValueError naming the setting that does not
    fit the model, `steps` above MAX_LAYER_FORWARDS, `fixed` if no token is left to decode, or a
    cache that reads values and has no `data_rows`.
    """
    if (size := layer_forwards(spec, target.info)) > MAX_LAYER_FORWARDS:
        raise ValueError(
            f"steps: with {target.info.layers} layers this run has {size} forwards of a layer, "
            f"more than the {MAX_LAYER_FORWARDS} that are estimated; lower steps or gen_length"
        )
    info, tokens = target.info.with_block_size(spec.block_length), target.prompt_tokens
    canvas = torch.full((1, _run(spec, target).length), info.mask_id)
    canvas[:, :tokens] = next(token for token in (0, 1) if token != info.mask_id)
    fixed = torch.zeros(canvas.shape, dtype=torch.bool)
    for offset, token in spec.fixed:
        canvas[:, tokens + offset] = token
        fixed[:, tokens + offset] = True
    end = canvas.shape[1] - target.suffix_tokens
    canvas[:, end:], fixed[:, end:] = canvas[0, 0], True
    if fixed[:, tokens:].all():
        raise ValueError("fixed: every token of the answer is given, so that nothing is decoded")

    def assumed_policy() -> CachePolicy:
        policy = make_policy(spec)
        if policy.data_rows() is None:
            return policy
        assert given.share is not None, "the assumptions are complete"
        return policy.with_assumed_share(given.share)

    job = Job(
        adapter=ShapeAdapter(info, dtype_of(spec)),
        spec=spec,
        canvas=canvas,
        prompt_length=tokens,
        make_policy=assumed_policy,
        unmasker=assumed.assumed_unmasker(spec, given.tokens_per_forward or 1.0),
        fixed_mask=fixed,
        suffix_length=target.suffix_tokens,
    )
    try:
        state = ShapeDenoiser(job)
        return Simulated(list(denoise(state)), state.work, state.cached_bytes())
    except (NotImplementedError, RuntimeError) as error:
        raise ValueError(
            f"cache: the rows that {spec.cache} computes depend on values of the model ({error}); "
            "its class must say what to assume, see CachePolicy.data_rows"
        ) from error


def estimate(
    spec: RunSpec, target: Target, device: str, given: Assumptions | None = None
) -> dict[str, Any]:
    """Work, memory and predicted time of a run as plain data.

    - `steps`, `forwards`, and `positions` committed;
    - `flops` of the run, `flops_per_step`, `flops_per_position`, `flops_by_part` (events.PARTS);
    - means over the steps: `rows` that enter it, `rows_by_site` computed in a layer,
      `bytes_per_step` and `bytes_by_kind`;
    - the share `recomputed` of the token-layers (engine.trace.metrics.recomputed_share);
    - `memory` in bytes, with `problem`, why the device cannot hold it, or empty;
    - `time`: `run_seconds`, `step_ms`, `median_step_ms`, `positions_per_s`, and the share
      `memory_bound_steps`;
    - `device`, `model`, `dtype`, `prompt_tokens`, `suffix_tokens`;
    - `assumptions`, and all of them in words, `assumed`; `exact`: nothing that data decides is
      assumed, and nothing is left out;
    - `published`: the nearest published figure, None if there is none.

    Raises ValueError naming `model`, `device`, `prompt_tokens`, `start` or the setting that does
    not fit.
    """
    spec = _checked(spec, target)
    complete, words = assumed.complete(spec, given or Assumptions(), target.info)
    missing = _left_out(spec, target)
    rates = known_device(device, target.info, dtype_of(spec))
    found = simulate(spec, target, complete)
    seconds, bounds = [], []
    for event, counted in zip(found.events, found.work, strict=True):
        step, bound = step_seconds(counted, event.forwards, rates)
        seconds.append(step)
        bounds.append(bound)
    work = _work(found)
    return (
        work
        | {"memory": _memory(spec, target, found, rates)}
        | {"time": _time(work["positions"], seconds, bounds)}
        | {"device": _described(rates)}
        | {
            "model": target.model, "dtype": spec.dtype, "prompt_tokens": target.prompt_tokens,
            "suffix_tokens": target.suffix_tokens,
            "assumptions": {
                "tokens_per_forward": complete.tokens_per_forward, "share": complete.share,
            },
            "assumed": [
                *words, *assumed.general(spec, target.prompt_tokens, complete.filled), *missing,
                *_expert_words(target.info), ROOFLINE, *([] if rates.measured else [ASSUMED]),
            ],
            "exact": not words and not missing,
            "published": _published(spec, target.model, rates),
        }
    )  # fmt: skip


def _checked(spec: RunSpec, target: Target) -> RunSpec:
    """The spec without what an estimate does not need; ValueError as `estimate`."""
    if spec.start is not None:
        raise ValueError("start: an estimate is of a whole run; leave start out")
    tokens, context = target.prompt_tokens, target.info.max_length
    if type(tokens) is not int or not 1 <= tokens <= MAX_PROMPT_TOKENS:
        raise ValueError(
            f"prompt_tokens: {tokens!r} is not a whole number from 1 to {MAX_PROMPT_TOKENS}"
        )
    if (run := _run(spec, target)).length > context:
        raise ValueError(
            f"prompt_tokens: {tokens} tokens and {run.answer_length} after them exceed the "
            f"context of {context} of {target.model}; lower prompt_tokens or gen_length"
        )
    spec = replace(spec, model=target.model, eos="official", record="off")
    check_methods(spec, target.info)  # `fixed` may be of another vocabulary
    derive_plan(spec)
    return spec


def _run(spec: RunSpec, target: Target) -> RunInfo:
    return RunInfo(
        target.info, 1, target.prompt_tokens, spec.gen_length, spec.block_length,
        suffix_length=target.suffix_tokens,
    )  # fmt: skip


def _work(found: Simulated) -> dict[str, Any]:
    """Steps, FLOPs by part, rows and bytes, as means over the steps."""
    steps = len(found.events)
    parts = np.sum([event.flops for event in found.events], axis=0)
    sites = np.sum([work.rows for work in found.work], axis=0).sum(0) / found.work[0].info.layers
    committed = sum(len(event.positions) for event in found.events)
    return {
        "steps": steps,
        "forwards": sum(event.forwards for event in found.events),
        "positions": committed,
        "flops": int(parts.sum()),
        "flops_per_step": float(parts.sum()) / steps,
        "flops_per_position": float(parts.sum()) / max(committed, 1),
        "flops_by_part": {name: int(n) for name, n in zip(PARTS, parts, strict=True)},
        "rows": sum(event.rows for event in found.events) / steps,
        "rows_by_site": {name: float(n) / steps for name, n in zip(SITES, sites, strict=True)},
        "recomputed": found.recomputed,
        "bytes_per_step": float(np.mean([total_bytes(work) for work in found.work])),
        "bytes_by_kind": {
            name: float(np.mean([getattr(work, f"{name}_bytes") for work in found.work]))
            for name in ("weight", "key", "activation")
        },
    }


def _memory(spec: RunSpec, target: Target, found: Simulated, rates: DeviceRates) -> dict[str, Any]:
    """Bytes held by weights, caches and the whole run, and whether the device holds them.

    Of a model with experts all weights are held, and a token uses the active ones.
    """
    weights, dtype = weights_bytes(target.info, dtype_of(spec)), dtype_of(spec)
    length, batch = _run(spec, target).length, 2 if spec.cfg_scale else 1
    run = found.cache_bytes
    run += run_bytes(target.info, dtype, length, batch, rows=found.logit_rows)
    problem = ""
    if rates.memory and weights + run > rates.memory:
        problem = (
            f"weights and run need {gigabytes(weights + run)}, and {rates.title} has "
            f"{gigabytes(rates.memory)}{' free' * rates.measured}"
        )
    experts = target.info.experts is not None
    active = active_parameters(target.info) * dtype.itemsize if experts else weights
    return {
        "weights_bytes": weights, "active_weights_bytes": active,
        "cache_bytes": found.cache_bytes, "run_bytes": run, "problem": problem,
    }  # fmt: skip


def _time(positions: int, seconds: list[float], bounds: list[str]) -> dict[str, Any]:
    """Predicted times of a step and of the run."""
    total = float(np.sum(seconds))
    return {
        "step_ms": total / len(seconds) * 1e3,
        "median_step_ms": float(np.median(seconds)) * 1e3,
        "run_seconds": total,
        "positions_per_s": positions / total,
        "memory_bound_steps": bounds.count("memory") / len(bounds),
    }


def _described(rates: DeviceRates) -> dict[str, Any]:
    return {
        "name": rates.name, "title": rates.title, "source": rates.source,
        "measured": rates.measured,
    }  # fmt: skip


def _left_out(spec: RunSpec, target: Target) -> tuple[str, ...]:
    """What the figures do not include: a guider, a vision tower, texts of unknown length."""
    out = []
    if not target.known_length:
        out.append(
            "The prompt counts as one token: the number of its tokens is known once the run's own "
            "model is on this machine."
        )
    if spec.unmasker == "guided":
        out.append("The work and the memory of the guider itself are not included.")
    if spec.images:
        out.append("The vision tower, which runs once for each image, is not included.")
    if spec.suffix and not target.suffix_tokens:
        out.append(
            "The suffix is not included: the number of its tokens is known once the run's own "
            "model is on this machine."
        )
    return tuple(out)


def _expert_words(info: ModelInfo) -> tuple[str, ...]:
    """How many experts are read in a layer, which depends on the values."""
    if (experts := info.experts) is None:
        return ()
    return (
        f"All {experts.count} experts of a layer are held in memory, and a token uses "
        f"{experts.active} of them. A product of n rows is taken to read min({experts.count}, "
        f"{experts.active} n) of them, the most that its tokens can choose.",
    )


def _published(spec: RunSpec, model: str, rates: DeviceRates) -> Mapping[str, Any] | None:
    """The nearest published figure as plain data."""
    near = nearest_figure(spec, model, rates.title)
    if near is None:
        return None
    row = near.figure
    return {
        "method": near.method,
        "figure": row.figure, "conditions": row.conditions,
        "gpu": row.gpu, "lengths": row.lengths, "shots": row.shots, "table": row.table,
        "source": row.source, "agrees": list(near.agrees), "differs": list(near.differs),
    }  # fmt: skip
