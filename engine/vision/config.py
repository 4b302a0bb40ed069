"""VisionInfo: sizes and modes of a model's vision part, from its config and its tensors' shapes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.config.images import ImageRef
from engine.models.loading.checkpoint import Checkpoint, CheckpointError
from engine.models.loading.config import read_config
from engine.models.loading.families import read_model_info
from engine.vision.geometry import (
    PAD_LAYOUT,
    PATCH,
    PATCHES,
    TILE,
    ImageLayout,
    Size,
    tiled_layout,
)

Shapes = Mapping[str, tuple[int, ...]]

HEADS = 16
LAYERS = 26  # the model itself cuts off the last of SigLIP's 27 layers
TOWER = "model.vision_tower.vision_tower.vision_model."
PROJECTOR, NEWLINE = "model.mm_projector.", "model.image_newline"
LAYER_NORM, FC1 = "encoder.layers.{}.layer_norm1.weight", "encoder.layers.0.mlp.fc1.weight"
MAX_GRIDS, MAX_TILES = 256, 64
REQUIRED = {  # the only values that are read, of fields that may be missing
    "mm_projector_type": "mlp2x_gelu", "mm_patch_merge_type": "spatial_unpad",
    "mm_resampler_type": None, "mm_use_im_start_end": False,
}  # fmt: skip
_PAIR, _CAP = re.compile(r"\((\d+)x(\d+)\)"), re.compile(r"anyres_max_([1-9]\d{0,2})")


class NoTowerError(CheckpointError):
    """A folder whose config names a vision tower that its weights lack."""


@dataclass(frozen=True)
class VisionInfo:
    """Sizes of a SigLIP tower and its projector, and the modes of their model.

    `mode` is that of a single image; several are shown in mode `pad`. `grids` are in pixels and
    `cap` bounds a map to `cap` times 729 patches, both of mode `anyres`. A prompt may have
    `max_prompt` rows, those of images included (None: as many as the context).
    """

    layers: int
    width: int
    ffn: int
    d_model: int
    mode: str
    grids: tuple[Size, ...]
    cap: int
    max_prompt: int | None

    @property
    def parameters(self) -> int:
        """Parameters of tower, projector and newline; the unused last norm is not read."""
        d, out = self.width, self.d_model
        layer = 4 * (d * d + d) + 2 * d * self.ffn + self.ffn + d + 4 * d
        embeddings = 3 * PATCH * PATCH * d + d + PATCHES * d
        return embeddings + self.layers * layer + (d + out + 2) * out + out

    def flops(self, crops: int) -> int:
        """FLOPs of tower and projector for so many crops; a multiply-add counts as two."""
        d, out, n = self.width, self.d_model, PATCHES
        layer = 2 * n * d * (4 * d + 2 * self.ffn) + 4 * n * n * d
        embedding, projector = 2 * n * 3 * PATCH * PATCH * d, 2 * n * (d + out) * out
        return crops * (embedding + self.layers * layer + projector)

    def mode_of(self, images: int) -> str:
        """The mode in which so many images are shown."""
        return self.mode if images == 1 else "pad"

    def layout(self, image: ImageRef, mode: str) -> ImageLayout:
        """The layout of an image in a mode."""
        if mode == "pad":
            return PAD_LAYOUT
        return tiled_layout(Size(image.width, image.height), self.grids, self.cap)


def names_tower(config: Mapping[str, Any]) -> bool:
    """Whether a config belongs to a model with a vision tower, whatever its `model_type`."""
    return bool(config.get("mm_vision_tower"))


def folder_vision_info(folder: Path) -> VisionInfo | CheckpointError | None:
    """The vision part of a checkpoint folder, None without one, or why it cannot be used."""
    try:
        config = read_config(folder)
        if not names_tower(config):
            return None
        shapes = Checkpoint(folder).shapes
        return read_vision_info(config, shapes, read_model_info(folder).d_model)
    except CheckpointError as error:
        return error


def read_vision_info(config: Mapping[str, Any], shapes: Shapes, d_model: int) -> VisionInfo:
    """The VisionInfo of a config that names a tower, and of the shapes of its folder's tensors.

    Raises NoTowerError if tensors are missing, CheckpointError naming a field or tensor that is not
    supported.
    """
    embedding, norm = TOWER + "embeddings.patch_embedding.weight", TOWER + LAYER_NORM
    needed = (embedding, norm.format(0), PROJECTOR + "0.weight", NEWLINE)
    missing = [name for name in needed if name not in shapes]
    if missing:
        raise NoTowerError(
            f"{missing[0]}: config.json names a vision tower ({str(config['mm_vision_tower'])[:60]}"
            ") whose tensors are missing, as in a pretraining stage or an adapter; this folder "
            "takes text only"
        )
    layers = sum(norm.format(layer) in shapes for layer in range(LAYERS))
    width, ffn = (_rows_of(shapes, name) for name in (embedding, TOWER + FC1))
    return vision_info(config, layers, width, ffn, d_model)


def _rows_of(shapes: Shapes, name: str) -> int:
    """The first size of a tensor; 0 if there is none."""
    return next(iter(shapes.get(name, ())), 0)


def vision_info(
    config: Mapping[str, Any], layers: int, width: int, ffn: int, d_model: int
) -> VisionInfo:
    """The VisionInfo of known sizes; CheckpointError names a field that is not supported."""
    for field, value in REQUIRED.items():
        if config.get(field, value) != value:
            raise CheckpointError(f"config.json: {field} is {config[field]!r}; {value!r} expected")
    if width < 1 or width % HEADS:
        raise CheckpointError(f"{TOWER}: width {width} does not split into {HEADS} heads")
    aspect = config.get("image_aspect_ratio")
    cap = _CAP.fullmatch(str(aspect))
    if aspect != "pad" and cap is None:
        raise CheckpointError(
            f"config.json: image_aspect_ratio is {str(aspect)[:60]!r}; pad and anyres_max_N are "
            "supported"
        )
    most = config.get("tokenizer_model_max_length")
    return VisionInfo(
        layers=layers,
        width=width,
        ffn=ffn,
        d_model=d_model,
        mode="pad" if cap is None else "anyres",
        grids=() if cap is None else _grids(config.get("image_grid_pinpoints")),
        cap=int(cap[1]) if cap else 1,
        max_prompt=most if type(most) is int and most > 0 else None,
    )


def _grids(given: Any) -> tuple[Size, ...]:
    """The grids of `image_grid_pinpoints`: pairs of pixels, or text as `(1x1),...,(6x6)`."""
    try:
        pairs = given
        if isinstance(given, str):
            ends = _PAIR.findall(given[:10_000])
            pairs = _between(ends) if ends else _listed(given[:10_000])
        grids = tuple(Size(width, height) for width, height in pairs)
        sides = [side for grid in grids for side in grid]
        if not all(type(side) is int and side > 0 and side % TILE == 0 for side in sides):
            raise ValueError
        tiles = [grid.width * grid.height // TILE**2 for grid in grids]
        if not 1 <= len(grids) <= MAX_GRIDS or max(tiles) > MAX_TILES:
            raise ValueError
    except (TypeError, ValueError):
        raise CheckpointError(
            f"config.json: image_grid_pinpoints should hold up to {MAX_GRIDS} pairs of multiples "
            f"of {TILE}, of at most {MAX_TILES} tiles each"
        ) from None
    return grids


def _between(ends: list[tuple[str, str]]) -> list[tuple[int, int]]:
    """All pairs from the first to the last of `ends`, in pixels."""
    (left, low), (right, high) = (
        tuple(min(int(n), 99) for n in end) for end in (ends[0], ends[-1])
    )
    return [(TILE * i, TILE * j) for i in range(left, right + 1) for j in range(low, high + 1)]


def _listed(text: str) -> Any:
    try:
        return json.loads(text.replace("(", "[").replace(")", "]"))
    except (ValueError, RecursionError):
        return None
