"""Crops of an image, 384 x 384 each, and their pixel values; all resizing is bicubic on uint8."""

from __future__ import annotations

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from engine.vision.geometry import TILE, ImageLayout, Size, fitted

BLACK, GREY = (0, 0, 0), (127, 127, 127)
BICUBIC = Image.Resampling.BICUBIC
BAND = 256  # rows of a padded image that are resized at once


def crops_of(image: Image.Image, layout: ImageLayout) -> list[Image.Image]:
    """The crops of an RGB image.

    In mode `anyres` the whole image squeezed to a tile, then the tiles row by row; in mode `pad`
    the image in the middle of a grey square.
    """
    if layout.grid is None:
        return [_padded_tile(image)]
    return [_tile(image), *_tiles(image, layout.grid)]


def pixel_values(crops: list[Image.Image]) -> Tensor:
    """Pixels of crops, float32 [n, 3, 384, 384] from -1 to 1."""
    stacked = np.stack([np.asarray(crop) for crop in crops]).astype(np.float32)
    return (torch.from_numpy(stacked).permute(0, 3, 1, 2) / 255 - 0.5) / 0.5


def resized(image: Image.Image, size: Size) -> Image.Image:
    """The image in another size, by one bicubic pass for each axis.

    Values are rounded and clipped between the passes. Pillow 13 shrinks the height first if it
    shrinks by more than twice as many pixels as the width, earlier versions never do. This order is
    fixed here, so that every version gives the same pixels.
    """
    shrinks = image.height - size.height, max(image.width - size.width, 0)
    height_first = shrinks[0] > 2 * shrinks[1]
    between = (image.width, size.height) if height_first else (size.width, image.height)
    return image.resize(between, BICUBIC).resize(size, BICUBIC)


def _tile(image: Image.Image) -> Image.Image:
    """The image resized to a tile; its ratio is not kept."""
    return image if image.size == (TILE, TILE) else resized(image, Size(TILE, TILE))


def _padded_tile(image: Image.Image) -> Image.Image:
    """The image in the middle of a grey square, resized to a tile.

    The width of the square is resized band by band, and rows that are all grey stay so. The pixels
    are those of the whole square, which has 800 MB for an image of 16,384 x 1.
    """
    side = max(image.size)
    left, top = (side - image.width) // 2, (side - image.height) // 2
    narrow = Image.new("RGB", (TILE, side), GREY)
    for row in range(0, image.height, BAND):
        part = image.crop((0, row, image.width, min(row + BAND, image.height)))
        band = Image.new("RGB", (side, part.height), GREY)
        band.paste(part, (left, 0))
        narrow.paste(band.resize((TILE, part.height), BICUBIC), (0, top + row))
    return narrow.resize((TILE, TILE), BICUBIC)


def _tiles(image: Image.Image, grid: Size) -> list[Image.Image]:
    """The tiles of the image scaled to fit `grid` (in tiles), centred on black."""
    across, down = grid.width * TILE, grid.height * TILE
    size = fitted(Size(*image.size), Size(across, down))
    ground = Image.new("RGB", (across, down), BLACK)
    place = (across - size.width) // 2, (down - size.height) // 2
    ground.paste(resized(image, size), place)
    return [
        ground.crop((x, y, x + TILE, y + TILE))
        for y in range(0, down, TILE)
        for x in range(0, across, TILE)
    ]
