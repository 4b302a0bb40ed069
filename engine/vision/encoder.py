"""ImageEncoder: SigLIP tower, projector and newline of a model; an image becomes embedding rows.

The tower is that of transformers without its last norm, which LLaDA-V does not use.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engine.core.progress import Progress, run_to_end
from engine.models.loading.checkpoint import Checkpoint
from engine.vision.config import HEADS, NEWLINE, PROJECTOR, TOWER, VisionInfo
from engine.vision.crops import crops_of, pixel_values
from engine.vision.geometry import PATCH, SIDE, TILE, ImageLayout
from engine.vision.picture import Picture

CROPS_AT_ONCE = 4  # bounds the memory of a layer's activations
NORM_EPS = 1e-6


class PatchEmbedding(nn.Conv2d):
    """The convolution of patches that do not overlap, computed as one product.

    On a GPU the convolution itself would round float32 numbers to TF32.
    """

    def forward(self, input: Tensor) -> Tensor:
        """Patches [n, D, height / P, width / P] of pixels [n, 3, height, width]."""
        patches = F.unfold(input, PATCH, stride=PATCH).mT
        rows = F.linear(patches, self.weight.flatten(1), self.bias)
        return rows.mT.unflatten(2, (input.shape[2] // PATCH, input.shape[3] // PATCH))


class ImageEncoder(nn.Module):
    """The vision part of a model; `_source` names the tensors of its parameters."""

    def __init__(self, info: VisionInfo) -> None:
        from transformers import SiglipVisionConfig, SiglipVisionModel  # a second of import

        super().__init__()
        self.info = info
        config = SiglipVisionConfig(
            hidden_size=info.width, intermediate_size=info.ffn, num_hidden_layers=info.layers,
            num_attention_heads=HEADS, image_size=TILE, patch_size=PATCH,
            layer_norm_eps=NORM_EPS, hidden_act="gelu_pytorch_tanh", vision_use_head=False,
        )  # fmt: skip
        self.tower = SiglipVisionModel(config)
        self.tower.embeddings.patch_embedding = PatchEmbedding(3, info.width, PATCH, PATCH)
        self.tower.add_module("post_layernorm", nn.Identity())
        self.projector = nn.Sequential(
            nn.Linear(info.width, info.d_model), nn.GELU(), nn.Linear(info.d_model, info.d_model)
        )
        self.newline = nn.Parameter(torch.empty(info.d_model))
        self.requires_grad_(False)

    @classmethod
    def load(
        cls, checkpoint: Checkpoint, info: VisionInfo, dtype: torch.dtype, device: torch.device
    ) -> Generator[Progress, None, ImageEncoder]:
        """Load the vision part of a checkpoint; yields bytes of the files.

        Raises CheckpointError naming a missing or wrong tensor.
        """
        with torch.device("meta"):
            encoder = cls(info)
        sources = {name: _source(name) for name, _ in encoder.named_parameters()}
        expected = {sources[n]: tuple(p.shape) for n, p in encoder.named_parameters()}
        checkpoint.check(expected, skipped=("",))
        encoder.to(dtype).to_empty(device=device)
        positions = encoder.tower.embeddings.position_ids
        positions.copy_(torch.arange(positions.shape[1]))
        done, total = 0, sum(checkpoint.nbytes(name) for name in expected)
        for name, parameter in encoder.named_parameters():
            start = 0
            for piece in checkpoint.read(sources[name], device):
                parameter[start : start + len(piece)].copy_(piece)
                start += len(piece)
                done += piece.nbytes
                yield Progress(done, total)
        return encoder.eval()

    @classmethod
    def from_checkpoint(
        cls, checkpoint: Checkpoint, info: VisionInfo, dtype: torch.dtype, device: torch.device
    ) -> ImageEncoder:
        """`load` without progress."""
        return run_to_end(cls.load(checkpoint, info, dtype, device))

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return self.newline.device

    @torch.inference_mode()
    def features(self, pixels: Tensor) -> Tensor:
        """The tower's output for crops [n, 3, 384, 384], [n, 729, width]."""
        found = [self.tower(part).last_hidden_state for part in self._batches(pixels)]
        return torch.cat(found)

    def encode(self, picture: Picture, layout: ImageLayout) -> Tensor:
        """The embedding rows of an image, [layout.rows, D]."""
        return run_to_end(self.encode_steps(picture, layout))

    def encode_steps(self, picture: Picture, layout: ImageLayout) -> Generator[int, None, Tensor]:
        """`encode` as a generator; yields the number of crops done."""
        crops, projected, done = pixel_values(crops_of(picture.rgb(), layout)), [], 0
        for part in self._batches(crops):
            with torch.inference_mode():
                projected.append(self.projector(self.features(part)))
            done += len(part)
            yield done
        with torch.inference_mode():
            return arrange_rows(torch.cat(projected), layout, self.newline)

    def _batches(self, pixels: Tensor) -> Iterator[Tensor]:
        for part in pixels.split(CROPS_AT_ONCE):
            yield part.to(self.device, self.newline.dtype)


def arrange_rows(features: Tensor, layout: ImageLayout, newline: Tensor) -> Tensor:
    """Projected crops [n, 729, D] as rows of the canvas, [rows, D].

    The whole image comes first, then the map of the tiles, each row of it ended by `newline` [D].
    """
    if layout.grid is None:
        return torch.cat((features[0], newline[None]))
    across, down = layout.grid
    depth = features.shape[-1]
    tiles = features[1:].view(down, across, SIDE, SIDE, depth)
    found = tiles.permute(0, 2, 1, 3, 4).reshape(down * SIDE, across * SIDE, depth)
    columns, rows = layout.cut
    found = found[rows : down * SIDE - rows, columns : across * SIDE - columns]
    size = layout.map.height, layout.map.width
    if found.shape[:2] != size:
        shrunk = F.interpolate(found.permute(2, 0, 1)[None], size, mode="bilinear")
        found = shrunk[0].permute(1, 2, 0)
    ends = newline.expand(layout.map.height, 1, depth)
    return torch.cat((features[0], torch.cat((found, ends), 1).flatten(0, 1)))


def _source(name: str) -> str:
    """The checkpoint's tensor of a parameter."""
    part, _, leaf = name.partition(".")
    return {"tower": TOWER, "projector": PROJECTOR, "newline": NEWLINE}[part] + leaf
