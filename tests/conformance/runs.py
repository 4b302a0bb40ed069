"""Decode a case with the engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from engine.cache.base import CachePolicy
from engine.config.spec import RunSpec
from engine.core.events import StepEvent
from engine.generate.capture.capturers import Capturer
from engine.generate.job import Job
from engine.generate.loop import Denoiser, denoise
from engine.guider.run_guider import RunGuider
from engine.models.base import ModelAdapter
from engine.record.recorder import Recorder
from engine.unmask.base import Unmasker

CapturerOf = Callable[[ModelAdapter, bool], Capturer | None]


@dataclass(frozen=True)
class Setup:
    """What decodes a case; `make_denoiser` makes the loop of a job.

    `answer` are the positions of the canvas behind the prompt, None: those of the spec.
    """

    adapter: ModelAdapter
    spec: RunSpec
    make_policy: Callable[[], CachePolicy]
    make_unmasker: Callable[[], Unmasker]
    make_denoiser: Callable[[Job], Denoiser] = Denoiser
    run_guider: RunGuider | None = None
    answer: int | None = None


@dataclass(frozen=True)
class Decoded:
    """A run of a case: its final state, the call that committed each position [G], its events."""

    state: Denoiser
    order: np.ndarray
    events: list[StepEvent]


def decode(
    setup: Setup,
    prompt: torch.Tensor,
    recorder: Recorder,
    capturer: Capturer | None = None,
    steps: int | None = None,
) -> Decoded:
    """Decode after a prompt [P], at most `steps` steps (None: to the end)."""
    length = setup.spec.gen_length if setup.answer is None else setup.answer
    masks = torch.full((length,), setup.adapter.info.mask_id)
    job = Job(
        adapter=setup.adapter,
        spec=setup.spec,
        canvas=torch.cat((prompt, masks))[None],
        prompt_length=len(prompt),
        make_policy=setup.make_policy,
        unmasker=setup.make_unmasker(),
        recorder=recorder,
        run_guider=setup.run_guider,
        capturer=capturer,
    )
    state = setup.make_denoiser(job)
    order, events = np.full(length, -1, np.int32), []
    if steps == 0:
        return Decoded(state, order, events)
    for event in denoise(state):
        order[event.positions - len(prompt)] = event.step
        events.append(event)
        if len(events) == steps:
            break
    return Decoded(state, order, events)
