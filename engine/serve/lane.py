"""Lane: one run of a session, from its spec to its RunFinished event."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np

from engine.config.spec import RunSpec
from engine.core.device import peak_memory, reset_peak_memory
from engine.core.events import GuidedStep, RunFinished, RunStarted, StepEvent
from engine.generate.autoregressive import AutoregressiveDecoder
from engine.generate.branch import BranchPoint
from engine.generate.capture.capturers import WARM_UP_STEPS
from engine.generate.loop import Denoiser, denoise
from engine.guider.model import Guider
from engine.models.base import ModelInfo
from engine.models.tokenizer import Tokenizer
from engine.record import make_recorder
from engine.serve import environment
from engine.serve.loaded_model import LoadedModel, check_context, make_job, prompt_ids
from engine.trace.metrics import Tally
from engine.vision.run_images import PromptImages, run_prompt


def _described(name: str, info: ModelInfo, tokenizer: Tokenizer) -> dict[str, Any]:
    """RunStarted.model: the model that decodes a run."""
    return {"name": name, "vocabulary": tokenizer.vocabulary} | info.to_dict()


class _NewPieces:
    """The bytes of the tokens that a run shows for the first time."""

    def __init__(self, tokenizer: Tokenizer, blank: int | None = None) -> None:
        self._tokenizer, self._sent = tokenizer, set[int]()
        self._blank = blank  # an id without a token

    def of(self, ids: np.ndarray) -> dict[int, bytes]:
        """Pieces of those of the ids that were not asked for before."""
        new = set(np.unique(ids).tolist()) - self._sent
        self._sent |= new
        blank = {i: b"" for i in new if i == self._blank}
        return self._tokenizer.pieces(new - set(blank)) | blank

    def add_to(self, event: StepEvent) -> StepEvent:
        """The event with the new pieces of all its ids."""
        ids = [event.ids]
        if event.recording is not None:
            ids.append(event.recording.top_ids.ravel())
            if event.recording.proposals is not None:
                ids.append(event.recording.proposals.ids)
            if event.recording.probe is not None:
                ids.append(event.recording.probe.top.ravel())
                if event.recording.probe.lens is not None:
                    ids.append(event.recording.probe.lens.ids.ravel())
        return replace(event, pieces=self.of(np.concatenate(ids)))


class Lane:
    """A run of a diffusion model that is advanced one event at a time."""

    def __init__(
        self,
        model: LoadedModel,
        spec: RunSpec,
        point: BranchPoint | None = None,
        images: PromptImages | None = None,
    ) -> None:
        self.model, self.spec, self._images = model, spec, images or PromptImages()
        vision = None if model.vision is None else model.vision.info
        prompt = run_prompt(spec, model.tokenizer, model.adapter.info, vision).ids
        if len(self._images.placed) != len(spec.images):
            raise ValueError("images: they are not encoded; run the spec by a session")
        self._job = make_job(model, spec, [prompt], make_recorder(spec), point, images=images)
        self._state: Denoiser | None = None
        self._steps: Iterator[StepEvent] = iter(())
        self._tally, self._warm_up_steps = Tally(self._job.canvas.shape[1]), 0
        self._pieces = _NewPieces(model.tokenizer)
        self._sent_guider_pieces: set[int] = set()

    @property
    def clock(self) -> float:
        """Milliseconds of engine time that this lane has used."""
        return self._tally.total_ms

    def warm_up(self) -> None:
        """Run some steps untimed and discard them, so that no first call is timed."""
        job = self._job
        count = WARM_UP_STEPS if job.capturer is None else job.capturer.warm_up_steps
        self._state = Denoiser(job)
        self._warm_up_steps = sum(1 for _ in islice(denoise(self._state), count))
        self._state.rewind()

    def start(self) -> RunStarted:
        """Allocate the run; the event describes its first canvas."""
        job = self._job
        reset_peak_memory(job.adapter.device)
        self._state = self._state or Denoiser(job)
        self._steps = denoise(self._state)
        canvas = self._state.ids.astype(np.int32)
        prompt = np.zeros(canvas.shape, bool)
        prompt[:, : job.prompt_length] = True
        pad = np.ones(canvas.shape, bool) if job.pad_mask is None else job.pad_mask.numpy()
        assert job.fixed_mask is not None
        return RunStarted(
            spec=self.spec.to_dict(),
            model=_described(self.spec.model, job.adapter.info, self.model.tokenizer),
            environment=environment.describe(self.spec, self.model.digest)
            | dict(self.model.loading)
            | {"warmup_steps": self._warm_up_steps},
            canvas=canvas,
            prompt_mask=prompt,
            fixed_mask=job.fixed_mask.numpy(),
            pad_mask=pad,
            pieces=self._pieces.of(canvas),
            facts=self._state.branches[0].policy.facts(),
            guider={} if job.run_guider is None else job.run_guider.description,
            images=tuple(image.to_dict() for image in self._images.placed),
            stops=job.stops,
        )

    def advance(self) -> StepEvent | RunFinished:
        """The next step, or the end of the run."""
        event = next(self._steps, None)
        if event is None:
            return self.finish("done")
        self._tally.add(event)
        event = self._pieces.add_to(event)
        if event.guided is None:
            return event
        return replace(event, guided=self._with_new_pieces(event.guided))

    def finish(self, reason: str) -> RunFinished:
        """End the run and free its memory."""
        state, job = self._state, self._job
        assert state is not None, "a lane is finished once, after its start"
        answer = state.answer(0)
        region = slice(job.prompt_length, job.prompt_length + answer.positions)
        own = ~state.masked[0, region]
        for known in (job.fixed_mask, job.known_mask):  # given tokens and the parent's do not count
            if known is not None:
                own = own & ~known[0, region].numpy()
        text = self.model.tokenizer.decode(list(answer.ids))
        memory: dict[str, int | None] = {
            "cache_bytes": state.cached_bytes(),
            "peak_memory_bytes": peak_memory(job.adapter.device),
        }
        if job.run_guider is not None:
            memory["guider_cache_bytes"] = job.unmasker.cached_bytes()
            memory["guider_weight_bytes"] = job.run_guider.weight_bytes
        self._state, self._steps = None, iter(())
        job.unmasker.set_guider(job.run_guider)  # with new readers, whose caches are empty
        return RunFinished(
            reason=reason,
            canvas=state.ids.astype(np.int32),
            texts=(text,),
            metrics=self._tally.metrics(
                int(own.sum()), self._tally.text_steps(job.prompt_length, answer.positions), memory
            )
            | self._images.metrics,
            similarity=job.recorder.finish(),
            answer=answer.ids,
        )

    def _with_new_pieces(self, step: GuidedStep) -> GuidedStep:
        """A guided step with only the pieces that were not sent before."""
        new = {i: piece for i, piece in step.pieces.items() if i not in self._sent_guider_pieces}
        self._sent_guider_pieces |= set(new)
        return replace(step, pieces=new)


class AutoregressiveLane:
    """A run of a causal model that is advanced one event at a time, as a Lane."""

    def __init__(self, model: Guider, spec: RunSpec) -> None:
        self.model, self.spec = model, spec
        prompt = prompt_ids(spec, model.tokenizer)
        self._decoder = AutoregressiveDecoder(model, spec, prompt)
        check_context(len(prompt), spec, self._decoder.info)
        self._steps: Iterator[StepEvent] = iter(())
        self._tally, self._warm_up_steps = Tally(self._decoder.ids.shape[1]), 0
        self._pieces = _NewPieces(model.tokenizer, self._decoder.info.mask_id)

    @property
    def clock(self) -> float:
        """Milliseconds of engine time that this lane has used."""
        return self._tally.total_ms

    def warm_up(self) -> None:
        """Run some steps untimed and discard them, so that no first call is timed."""
        self._warm_up_steps = sum(1 for _ in islice(self._decoder.steps(), WARM_UP_STEPS))
        self._decoder.rewind()

    def start(self) -> RunStarted:
        """Begin the run; the event describes its first canvas."""
        decoder = self._decoder
        reset_peak_memory(self.model.model.device)
        self._steps = decoder.steps()
        canvas = decoder.ids.astype(np.int32)
        return RunStarted(
            spec=self.spec.to_dict(),
            model=_described(self.model.name, decoder.info, self.model.tokenizer),
            environment=environment.describe(self.spec, self.model.digest)
            | {"warmup_steps": self._warm_up_steps},
            canvas=canvas,
            prompt_mask=np.arange(canvas.shape[1])[None] < decoder.prompt_length,
            fixed_mask=np.zeros(canvas.shape, bool),
            pad_mask=np.ones(canvas.shape, bool),
            pieces=self._pieces.of(canvas),
        )

    def advance(self) -> StepEvent | RunFinished:
        """The next step, or the end of the run."""
        event = next(self._steps, None)
        if event is None:
            return self.finish("done")
        self._tally.add(event)
        return self._pieces.add_to(event)

    def finish(self, reason: str) -> RunFinished:
        """End the run and free its memory."""
        decoder = self._decoder
        answer = decoder.answer().ids
        tokens = len(answer)
        text_steps = self._tally.text_steps(decoder.prompt_length, tokens)
        memory = {
            "cache_bytes": decoder.cached_bytes(),
            "peak_memory_bytes": peak_memory(self.model.model.device),
        }
        canvas, self._steps = decoder.ids.astype(np.int32), iter(())
        decoder.rewind()
        return RunFinished(
            reason=reason,
            canvas=canvas,
            texts=(self.model.tokenizer.decode(list(answer)),),
            metrics=self._tally.metrics(tokens, text_steps, memory),
            answer=answer,
        )


AnyLane = Lane | AutoregressiveLane


def make_lane(
    model: LoadedModel | Guider,
    spec: RunSpec,
    point: BranchPoint | None = None,
    images: PromptImages | None = None,
) -> AnyLane:
    """The lane of a spec and the model that decodes it; `point` is where a branch starts."""
    if isinstance(model, Guider):
        return AutoregressiveLane(model, spec)
    return Lane(model, spec, point, images)
