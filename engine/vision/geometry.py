"""Geometry of an image: grid of tiles, map of patches and rows on the canvas.

Pure functions of sizes in pixels and patches; LLaDA-V follows LLaVA's "any resolution" scheme.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from engine.config.images import SIDE, image_rows

TILE, PATCH = 384, 14  # pixels; 27 patches leave the last 6 pixels of each side unseen
PATCHES = SIDE * SIDE
CAP_SLACK = 1.1  # a map is shrunk if its side is more than this times too large


class Size(NamedTuple):
    """Width and height."""

    width: int
    height: int


class ImageLayout(NamedTuple):
    """How an image becomes rows of the canvas.

    `grid` is the size in tiles of the enlarged image, None in mode `pad`, which has one crop. `cut`
    are the patches left out on both sides of the map, columns and rows; `map` the size of the map
    in patches before the newlines are added. `rows` counts whole image, map and newlines.
    """

    grid: Size | None
    cut: Size
    map: Size
    crops: int
    rows: int


PAD_LAYOUT = ImageLayout(None, Size(0, 0), Size(SIDE, SIDE), 1, image_rows("pad", SIDE, SIDE))


def choose_grid(image: Size, grids: Sequence[Size]) -> Size:
    """The one of the `grids` (pixels) that keeps most of the image's pixels, then wastes fewest.

    The first wins among equals.
    """
    best, best_key = grids[0], (-1, 0)
    for grid in grids:
        scale = min(grid.width / image.width, grid.height / image.height)
        kept = int(image.width * scale) * int(image.height * scale)
        effective = min(kept, image.width * image.height)
        key = (effective, effective - grid.width * grid.height)
        if key > best_key:
            best, best_key = grid, key
    return best


def fitted(image: Size, grid: Size) -> Size:
    """The size of the image scaled to fit into `grid`, its ratio kept; it may grow."""
    across, down = grid.width / image.width, grid.height / image.height
    if across < down:
        return Size(grid.width, min(math.ceil(image.height * across), grid.height))
    return Size(min(math.ceil(image.width * down), grid.width), grid.height)


def unpadded_cut(image: Size, grid_map: Size) -> Size:
    """Columns and rows of patches to leave out on both sides of a map, which show padding only.

    Both sides lose the same number, so a column or row of padding may stay.
    """
    width, height = grid_map
    if image.width / image.height > width / height:
        return Size(0, (height - int(image.height * (width / image.width))) // 2)
    return Size((width - int(image.width * (height / image.height))) // 2, 0)


def capped(grid_map: Size, most: int) -> Size:
    """The size of a map shrunk to about `most` times PATCHES if it is much larger."""
    ratio = math.sqrt(grid_map.width * grid_map.height / (most * PATCHES))
    if ratio <= CAP_SLACK:
        return grid_map
    return Size(int(grid_map.width // ratio), int(grid_map.height // ratio))


def tiled_layout(image: Size, grids: Sequence[Size], most: int) -> ImageLayout:
    """The layout of an image in mode `anyres`; `grids` are in pixels, `most` caps the map."""
    pixels = choose_grid(image, grids)
    grid = Size(pixels.width // TILE, pixels.height // TILE)
    whole = Size(grid.width * SIDE, grid.height * SIDE)
    cut = unpadded_cut(image, whole)
    inner = Size(whole.width - 2 * cut.width, whole.height - 2 * cut.height)
    shown = capped(inner, most)
    rows = image_rows("anyres", *shown)
    return ImageLayout(grid, cut, shown, 1 + grid.width * grid.height, rows)
