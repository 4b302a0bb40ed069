"""LoadedModel, a checkpoint in memory, and the jobs that are decoded on it."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from engine.cache.base import CachePolicy, PolicyContext, RunInfo
from engine.cache.calibration.drift_profile import DriftProfile
from engine.cache.stack import Stack
from engine.catalog import check_model, make_policy, make_rule, make_unmasker
from engine.config.spec import RunSpec
from engine.core.progress import Progress, run_to_end
from engine.generate.branch import BranchPoint, branch_job
from engine.generate.capture.capturers import make_capturer
from engine.generate.job import Job, filled_after_end
from engine.guider.model import Guider
from engine.guider.run_guider import RunGuider
from engine.models.base import ModelAdapter, ModelInfo
from engine.models.given_rows import GivenRows
from engine.models.tokenizer import Tokenizer
from engine.record.recorder import Recorder
from engine.serve.drift_meter import measure_drifts
from engine.vision.encoder import ImageEncoder
from engine.vision.run_images import PromptImages


@dataclass(frozen=True)
class LoadedModel:
    """A checkpoint in memory; `folder` is None for a model without files.

    `profiles` are drifts measured on it, by base cache and quantity; `kept` is what policies
    derived from it. `make_run_guider` makes the guider of a run from the specs and prompts of its
    sequences, and `guider_digest` identifies its weights. `loading` are the free_before_bytes and
    free_after_bytes of its main device.
    `vision` encodes images, None until a run needs it or if the model takes none.
    """

    adapter: ModelAdapter
    tokenizer: Tokenizer
    digest: str
    folder: Path | None = None
    profiles: dict[tuple[str, str], DriftProfile] = field(default_factory=dict, compare=False)
    kept: dict[str, Any] = field(default_factory=dict, compare=False)
    make_run_guider: Callable[[Sequence[RunSpec], list[list[int]]], RunGuider] | None = None
    guider_digest: Callable[[RunSpec], str] | None = field(default=None, compare=False)
    loading: Mapping[str, int] = field(default_factory=dict, compare=False)
    vision: ImageEncoder | None = field(default=None, compare=False)


def digests_of(model: LoadedModel | Guider, spec: RunSpec) -> dict[str, str]:
    """Digests of the weights that decode a spec: `checkpoint`, and `guider` of a guided run."""
    found = {"checkpoint": model.digest}
    if isinstance(model, LoadedModel) and model.guider_digest and make_rule(spec).guided:
        found["guider"] = model.guider_digest(spec)
    return found


def prompt_ids(spec: RunSpec, tokenizer: Tokenizer) -> list[int]:
    """The ids of a spec's prompt; see Tokenizer.encode_prompt.

    Raises ValueError naming `images` if it has any: those are encoded by a session.
    """
    if spec.images:
        raise ValueError("images: they are read in single runs and races only; leave them out")
    return tokenizer.encode_prompt(spec.prompt, spec.messages, spec.chat)


def suffix_ids(spec: RunSpec, tokenizer: Tokenizer) -> list[int]:
    """The ids of the text after a spec's answer."""
    return tokenizer.encode_text(spec.suffix) if spec.suffix else []


def check_context(tokens: int, spec: RunSpec, info: ModelInfo, suffix: int = 0) -> None:
    """Raise ValueError naming `prompt` if it, the answer and the suffix exceed the context.

    `tokens` are those of the prompt, `suffix` those of the text after the answer.
    """
    run = RunInfo(info, 1, tokens, spec.gen_length, spec.block_length, suffix_length=suffix)
    if run.length > info.max_length:
        answer, after = run.answer_length - suffix, f", a suffix of {suffix}" if suffix else ""
        raise ValueError(
            f"prompt: {tokens} tokens{after} and an answer of {answer} exceed the context of "
            f"{info.max_length}; shorten the {'texts' if suffix else 'prompt'} or lower gen_length"
        )


def make_job(
    model: LoadedModel,
    spec: RunSpec,
    prompts: list[list[int]],
    recorder: Recorder | None = None,
    point: BranchPoint | None = None,
    sequence_specs: Sequence[RunSpec] = (),
    images: PromptImages | None = None,
) -> Job:
    """A job of a spec over `prompts`, lists of ids padded on the left to one length.

    `point` is where a branch starts. `sequence_specs` are the specs of the single sequences: a
    guider reads their prompts in its own chat template, and their seeds fix the sequences' random
    numbers. Default: `spec` for each, with consecutive seeds. `images` are
    those of the prompt, of which there is one then. Raises ValueError naming `prompt`, `fixed`,
    `start` or `guided.guider` if they do not fit the model.
    """
    if spec.start is not None and point is None:
        raise ValueError("start: the trace to branch from is not available; leave start out")
    check_model(spec, model.adapter.info)
    adapter = model.adapter.with_block_size(spec.block_length)
    info, width = adapter.info, max(map(len, prompts))
    suffix = suffix_ids(spec, model.tokenizer)
    check_context(width, spec, info, len(suffix))
    run = RunInfo(
        info, len(prompts), width, spec.gen_length, spec.block_length, suffix_length=len(suffix)
    )
    canvas, pad_mask, fixed_mask = _first_canvas(run, prompts, suffix, spec.fixed)
    recorder, unmasker, run_guider = recorder or Recorder(), make_unmasker(spec), None
    if unmasker.guided:
        if model.make_run_guider is None:
            raise ValueError("guided.guider: no guider is available; choose another unmasker")
        run_guider = model.make_run_guider(sequence_specs or [spec] * len(prompts), prompts)

    def prepared_policy() -> CachePolicy:
        policy = make_policy(spec)
        policy.prepare(policy_context_of(model, spec.model))
        return policy

    if images is not None and images.placed:
        assert len(prompts) == 1, "images belong to a single prompt"
        spans = [(i.first, rows) for i, rows in zip(images.placed, images.rows, strict=True)]
        adapter = adapter.with_given_rows(GivenRows(canvas.shape[1], spans))
    job = Job(
        adapter=adapter,
        spec=spec,
        canvas=canvas,
        prompt_length=width,
        make_policy=prepared_policy,
        unmasker=unmasker,
        pad_mask=None if bool(pad_mask.all()) else pad_mask,
        fixed_mask=fixed_mask,
        recorder=recorder,
        seeds=tuple(one.seed for one in sequence_specs),
        run_guider=run_guider,
        capturer=make_capturer(adapter, unmasker.guided),
        suffix_length=len(suffix),
        stops=tuple(tuple(model.tokenizer.encode(text)) for text in spec.stop),
    )
    return filled_after_end(job if point is None else branch_job(job, point))


def _first_canvas(
    run: RunInfo,
    prompts: list[list[int]],
    suffix: list[int],
    fixed: Sequence[tuple[int, int]],
) -> tuple[Tensor, Tensor, Tensor]:
    """The first canvas [B, T], and where it is no padding and where it is given, [B, T] each."""
    info, width, end = run.info, run.prompt_length, run.length - len(suffix)
    canvas = torch.full((len(prompts), run.length), info.mask_id)
    pad_mask = torch.ones(canvas.shape, dtype=torch.bool)
    fixed_mask = torch.zeros(canvas.shape, dtype=torch.bool)
    for row, ids in enumerate(prompts):
        canvas[row, width - len(ids) : width] = torch.tensor(ids)
        canvas[row, : width - len(ids)] = info.pad_id
        pad_mask[row, : width - len(ids)] = False
    canvas[:, end:] = torch.tensor(suffix, dtype=torch.int64)
    fixed_mask[:, end:] = True
    for offset, token in fixed:
        canvas[:, width + offset] = token
        fixed_mask[:, width + offset] = True
    return canvas, pad_mask, fixed_mask


def policy_context_of(model: LoadedModel, name: str) -> PolicyContext:
    """The context of policies on a model; each drift profile is measured once."""

    def drifts(base: str, quantity: str) -> DriftProfile:
        if (base, quantity) not in model.profiles:
            run_to_end(_measure(model, name, base, quantity))
        return model.profiles[base, quantity]

    return PolicyContext(model.adapter, model.digest, model.folder, drifts, kept=model.kept)


class _UnknownDriftsError(Exception):
    """A policy needs drifts (base cache, quantity) that were never measured on the model."""


class _UnfinishedError(Exception):
    """A policy has not derived yet what it needs from all layers; with the Progress."""


def prepare_policies(model: LoadedModel, spec: RunSpec) -> Generator[Progress, None, int]:
    """Measure and derive what the policies of a spec need and no file has, with progress.

    Returns the number of drift profiles measured. Without this, `make_job` does it when its policy
    is prepared.
    """

    def known(base: str, quantity: str) -> DriftProfile:
        if (base, quantity) not in model.profiles:
            raise _UnknownDriftsError(base, quantity)
        return model.profiles[base, quantity]

    def report(done: int, total: int) -> None:
        raise _UnfinishedError(Progress(done, total, "layers"))

    context, measured = policy_context_of(model, spec.model), 0
    context = replace(context, measure=known, report=report)
    while True:
        try:
            make_policy(spec).prepare(context)
        except _UnknownDriftsError as needed:
            yield from _measure(model, spec.model, *needed.args)
            measured += 1
        except _UnfinishedError as unfinished:
            yield unfinished.args[0]
        else:
            return measured


def _measure(
    model: LoadedModel, name: str, base: str, quantity: str
) -> Generator[Progress, None, None]:
    """Measure a drift profile and keep it with the model."""

    def make(calibration: RunSpec, meter: CachePolicy) -> Job:
        asked = replace(calibration, chat=bool(model.tokenizer.template))
        job = make_job(model, asked, [prompt_ids(asked, model.tokenizer)])
        return replace(job, make_policy=lambda: Stack(make_policy(calibration), meter))

    measured = yield from measure_drifts(make, name, base, quantity, model.adapter.info)
    model.profiles[base, quantity] = measured
