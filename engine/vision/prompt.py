"""Prompts with images: placeholders among the ids of a prompt, and the rows that replace them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from engine.config.images import ImageRef
from engine.config.spec import RunSpec
from engine.models.tokenizer import Tokenizer
from engine.vision.config import VisionInfo
from engine.vision.geometry import ImageLayout

PLACEHOLDER = -200  # in place of an image among ids, as in LLaVA's code


@dataclass(frozen=True)
class PlacedImage:
    """An image of a prompt: its name, mode, layout and first position on the canvas."""

    ref: ImageRef
    mode: str
    layout: ImageLayout
    first: int

    def to_dict(self) -> dict[str, Any]:
        """Plain data for events and traces; see RunStarted.images."""
        layout = self.layout
        return {
            "name": str(self.ref), "width": self.ref.width, "height": self.ref.height,
            "mode": self.mode, "first": self.first, "rows": layout.rows, "crops": layout.crops,
            "grid": list(layout.grid or (1, 1)), "map": list(layout.map),
        }  # fmt: skip


def placed_images(
    names: Sequence[str], ids: Sequence[int], vision: VisionInfo, mode: str | None = None
) -> tuple[PlacedImage, ...]:
    """The images of a prompt, in the order of the placeholders among its `ids`.

    `mode` None: that of the model for so many images. Raises ValueError naming `images` if there
    are more or fewer placeholders than images.
    """
    refs = [ImageRef.parse(name) for name in names]
    places = [i for i, token in enumerate(ids) if token == PLACEHOLDER]
    if len(places) != len(refs):
        raise ValueError(
            f"images: the prompt has {len(places)} places for images and {len(refs)} are given; "
            "give one for each place"
        )
    mode = mode or vision.mode_of(len(refs))
    found, grown = [], 0
    for ref, place in zip(refs, places, strict=True):
        layout = vision.layout(ref, mode)
        found.append(PlacedImage(ref, mode, layout, place + grown))
        grown += layout.rows - 1
    return tuple(found)


def expanded(ids: Sequence[int], images: Sequence[PlacedImage], fill: int) -> list[int]:
    """The ids of a prompt with the id `fill` at all rows of its images."""
    rows = iter([image.layout.rows for image in images])
    out: list[int] = []
    for token in ids:
        out += [fill] * next(rows) if token == PLACEHOLDER else [token]
    return out


def ids_with_placeholders(spec: RunSpec, tokenizer: Tokenizer) -> list[int]:
    """The ids of a spec's prompt; its images come first in the first turn of the user.

    LLaDA-V's released code drops the first token after an image, which is the line break before the
    question. So the question follows its images at once, unless `keep_after_image`. Typed text
    gives no special ids. Raises ValueError as Tokenizer.encode_prompt.
    """
    between = tokenizer.encode_text("\n") if spec.images and spec.keep_after_image else []
    lead = [*[PLACEHOLDER] * len(spec.images), *between]
    return tokenizer.encode_prompt(spec.prompt, spec.messages, spec.chat, lead)


def check_prompt_length(
    rows: int, images: Sequence[PlacedImage], vision: VisionInfo | None, context: int, answer: int
) -> None:
    """Raise ValueError naming `prompt`, its rows of images and of text, and the limit.

    `rows` are those of the prompt and `answer` those that follow it, of a `context`.
    """
    shown = sum(image.layout.rows for image in images)
    most = context - answer
    if vision is not None and vision.max_prompt is not None:
        most = min(most, vision.max_prompt)
    if rows > most:
        raise ValueError(
            f"prompt: {shown} rows of images and {rows - shown} of text are more than the "
            f"{most} that a prompt may have here; shrink the image, shorten the text or lower "
            "gen_length"
        )
