"""Images of a run: the prompt on the canvas, rows, memory and work of its images, encoding."""

from __future__ import annotations

from collections.abc import Generator, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from engine.config.images import ImageRef
from engine.config.spec import RunSpec
from engine.core.device import synchronized_time
from engine.core.progress import Progress
from engine.models.base import ModelInfo
from engine.models.tokenizer import Tokenizer
from engine.vision.config import VisionInfo
from engine.vision.encoder import CROPS_AT_ONCE, ImageEncoder
from engine.vision.geometry import PATCHES, TILE
from engine.vision.picture import Picture
from engine.vision.prompt import (
    PlacedImage,
    check_prompt_length,
    expanded,
    ids_with_placeholders,
    placed_images,
)

Pictures = Mapping[str, Picture]  # by the names of RunSpec.images


class EncodedImage(NamedTuple):
    """The embedding rows [n, D] of an image, and the milliseconds that the tower took for them."""

    rows: Tensor
    ms: float


Encoded = MutableMapping[tuple[ImageEncoder, str, str], EncodedImage]  # by encoder, name and mode


@dataclass(frozen=True)
class RunPrompt:
    """The ids of a prompt on the canvas, and its images; rows of images hold the padding id."""

    ids: list[int]
    images: tuple[PlacedImage, ...] = ()

    @property
    def image_rows(self) -> int:
        """Rows of images."""
        return sum(image.layout.rows for image in self.images)


@dataclass(frozen=True)
class PromptImages:
    """The encoded images of a run: `rows` [n, D] of each, and what the tower and projector cost."""

    placed: tuple[PlacedImage, ...] = ()
    rows: tuple[Tensor, ...] = field(default=(), compare=False)
    ms: float = 0.0
    flops: int = 0

    @property
    def metrics(self) -> dict[str, float]:
        """The cost as metrics of the run, which its other times and FLOPs do not include."""
        return {"image_ms": self.ms, "gflops_image": self.flops / 1e9} if self.placed else {}


def run_prompt(
    spec: RunSpec, tokenizer: Tokenizer, info: ModelInfo, vision: VisionInfo | None
) -> RunPrompt:
    """The prompt of a spec on a model with the vision part `vision`, if it has one.

    Raises ValueError naming `prompt` if it is empty or too long, `chat` if the template has ids
    that the model lacks, `images` if the model takes none.
    """
    check_takes(spec, vision)
    ids = ids_with_placeholders(spec, tokenizer)
    if max(ids, default=0) >= info.vocab_size:
        raise ValueError(
            f"chat: the prompt's token {max(ids)} is beyond the model's {info.vocab_size}; switch "
            "the template off"
        )
    if vision is None:
        return RunPrompt(ids)
    images = placed_images(spec.images, ids, vision)
    rows = expanded(ids, images, info.pad_id)
    suffix = len(tokenizer.encode_text(spec.suffix)) if spec.suffix else 0
    answer = spec.gen_length + suffix
    check_prompt_length(len(rows), images, vision, info.max_length, answer)
    return RunPrompt(rows, images)


def check_takes(spec: RunSpec, vision: VisionInfo | None) -> None:
    """Raise ValueError naming `images` if a spec has some and its model takes none."""
    if vision is None and spec.images:
        raise ValueError(
            f"images: {spec.model} takes text only; remove the image, or choose a model that takes "
            "images, such as GSAI-ML/LLaDA-V"
        )


def image_rows(spec: RunSpec, vision: VisionInfo | None) -> int:
    """Rows that a spec's images take on the canvas."""
    if vision is None or not spec.images:
        return 0
    mode = vision.mode_of(len(spec.images))
    return sum(vision.layout(ImageRef.parse(name), mode).rows for name in spec.images)


def image_flops(spec: RunSpec, vision: VisionInfo | None) -> int:
    """FLOPs of tower and projector for a spec's images."""
    if vision is None or not spec.images:
        return 0
    mode = vision.mode_of(len(spec.images))
    layouts = [vision.layout(ImageRef.parse(name), mode) for name in spec.images]
    return vision.flops(sum(layout.crops for layout in layouts))


def vision_bytes(spec: RunSpec, vision: VisionInfo | None, dtype: torch.dtype) -> int:
    """Bytes of the vision part, of its activations and of the rows that it gives; 0 if unused."""
    if vision is None or not spec.images:
        return 0
    activations = CROPS_AT_ONCE * PATCHES * (8 * vision.width + 2 * vision.ffn)
    rows = 2 * image_rows(spec, vision) * vision.d_model
    return (vision.parameters + activations + rows) * dtype.itemsize


def check_given(spec: RunSpec, pictures: Pictures) -> None:
    """Raise ValueError naming `images` unless every image of a spec is among the pictures."""
    missing = [name for name in spec.images if name not in pictures]
    if missing:
        raise ValueError(
            f"images: {missing[0]} is needed again; a spec, a link and a run card hold only the "
            "name of an image, so add the same file"
        )


def encode_images(
    encoder: ImageEncoder | None,
    placed: tuple[PlacedImage, ...],
    pictures: Pictures,
    known: Encoded,
) -> Generator[Progress, None, PromptImages]:
    """Encode the images of a prompt; those in `known` are reused, new ones added to it.

    Yields bytes of the crops' pixels. The `encoder` may be None if there are no images.
    """
    if not placed:
        return PromptImages()
    assert encoder is not None, "it is loaded for a prompt with images"
    total, done = sum(image.layout.crops for image in placed), 0
    size = 3 * TILE * TILE
    found = []
    for image in placed:
        key = encoder, str(image.ref), image.mode
        if key not in known:
            encoding = encoder.encode_steps(pictures[str(image.ref)], image.layout)
            steps = _timed(encoding, encoder.device)
            while True:
                try:
                    yield Progress(size * (done + next(steps)), size * total)
                except StopIteration as end:
                    known[key] = EncodedImage(*end.value)
                    break
        done += image.layout.crops
        found.append(known[key])
    return PromptImages(
        placed,
        tuple(one.rows for one in found),
        sum(one.ms for one in found),
        encoder.info.flops(total),
    )


def _timed(
    encoding: Generator[int, None, Tensor], device: torch.device
) -> Generator[int, None, tuple[Tensor, float]]:
    """The steps of `encoding`; returns its rows and its milliseconds, without those between steps.

    Between steps the caller may do other work, for example send a page its progress.
    """
    ms = 0.0
    while True:
        began = synchronized_time(device)
        try:
            done = next(encoding)
        except StopIteration as end:
            return end.value, ms + 1e3 * (synchronized_time(device) - began)
        ms += 1e3 * (synchronized_time(device) - began)
        yield done
