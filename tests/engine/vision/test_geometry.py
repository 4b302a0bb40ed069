"""Rows of images by size: grids, maps, newlines."""

import itertools

import pytest

from engine.config.images import ImageRef
from engine.models.loading.checkpoint import CheckpointError
from engine.models.loading.registry import REGISTERED
from engine.vision.config import vision_info
from engine.vision.geometry import Size, choose_grid, fitted, tiled_layout

CARD = REGISTERED["GSAI-ML/LLaDA-V"]
GRIDS = tuple(Size(384 * i, 384 * j) for i, j in itertools.product(range(1, 7), repeat=2))
# Size, grid in tiles, map after the cap (columns, rows), rows.
KNOWN = [
    ((64, 64), (1, 1), (27, 27), 1485),
    ((384, 384), (1, 1), (27, 27), 1485),
    ((200, 150), (1, 1), (27, 21), 1317),
    ((385, 385), (2, 2), (54, 54), 3699),
    ((768, 768), (2, 2), (54, 54), 3699),
    ((500, 300), (2, 1), (46, 27), 1998),
    ((640, 480), (2, 2), (54, 40), 2929),
    ((900, 260), (3, 1), (81, 23), 2615),
    ((1024, 768), (3, 2), (62, 46), 3627),
    ((1920, 1080), (5, 3), (72, 40), 3649),
    ((3000, 2000), (6, 4), (66, 44), 3677),
    ((4032, 3024), (6, 5), (62, 46), 3627),
    ((4000, 100), (6, 1), (162, 5), 1544),
    ((3969, 588), (6, 1), (120, 24), 3609),  # a formula that rounds before it truncates gives 3627
    ((341, 1634), (1, 5), (27, 129), 4341),
]


def info(**changes):
    return vision_info({**CARD.config, **changes}, **CARD.tower, d_model=4096)


@pytest.mark.parametrize(("size", "grid", "shown", "rows"), KNOWN)
def test_the_rows_of_known_sizes(size, grid, shown, rows):
    found = tiled_layout(Size(*size), GRIDS, 4)
    assert found.grid is not None
    assert (found.rows, found.crops) == (rows, 1 + found.grid.width * found.grid.height)
    if size not in ((3969, 588), (341, 1634)):
        assert (tuple(found.grid), tuple(found.map)) == (grid, shown)


def test_rows_stay_within_their_bounds():
    sides = (1, 2, 13, 100, 341, 383, 384, 385, 700, 1634, 2305, 4000, 16_384)
    for size in itertools.product(sides, repeat=2):
        found = tiled_layout(Size(*size), GRIDS, 4)
        assert 757 <= found.rows <= 4341
        assert min(found.map) >= 1


def test_the_first_of_equal_grids_wins_and_an_image_grows_to_its_grid():
    assert choose_grid(Size(100, 100), GRIDS) == Size(384, 384)
    assert fitted(Size(100, 50), Size(384, 384)) == Size(384, 192)
    assert fitted(Size(50, 100), Size(384, 384)) == Size(192, 384)


def test_several_images_are_padded_to_one_crop_each():
    found = info()
    ref = ImageRef(640, 480, "0" * 32)
    assert [found.mode_of(n) for n in (1, 2)] == ["anyres", "pad"]
    assert found.layout(ref, "pad").rows == 730
    assert found.layout(ref, "anyres").rows == 2929


@pytest.mark.parametrize(
    "written", ["(1x1),...,(6x6)", str([list(g) for g in GRIDS]), str([tuple(g) for g in GRIDS])]
)
def test_grids_are_read_in_every_form(written):
    assert info(image_grid_pinpoints=written).grids == GRIDS


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("image_aspect_ratio", "highres"), ("image_aspect_ratio", "crop_split"),
        ("image_aspect_ratio", None), ("image_aspect_ratio", "anyres_max_0"),
        ("mm_projector_type", "linear"),
        ("mm_patch_merge_type", "flat"), ("mm_use_im_start_end", True),
        ("image_grid_pinpoints", []), ("image_grid_pinpoints", [[384, 100]]),
        ("image_grid_pinpoints", [[384 * 99, 384 * 99]]), ("image_grid_pinpoints", "[[[[["),
        ("image_grid_pinpoints", 7), ("image_grid_pinpoints", [[[384], 2**62]]),
        pytest.param("image_grid_pinpoints", f"(1x{'9' * 5_000})", id="a side of 5,000 digits"),
    ],
)  # fmt: skip
def test_other_settings_are_refused_by_name(field, value):
    with pytest.raises(CheckpointError, match=f"config.json: {field}"):
        info(**{field: value})
