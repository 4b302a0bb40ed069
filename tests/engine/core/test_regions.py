"""Regions: the rows of each, and their kinds against a cell-by-cell reference."""

from itertools import product

import numpy as np
import pytest

from engine.core.events import KINDS
from engine.core.regions import (
    recomputed_kinds,
    refreshes_within,
    region_rows,
    reuse_kind,
    window_kinds,
)


@pytest.mark.parametrize("shift", [0, 1])
def test_every_row_belongs_to_one_region(shift):
    areas = region_rows(6, slice(10, 14), 22, shift)
    assert (areas.sum(0) == 1).all()
    assert np.flatnonzero(areas[0]).tolist() == list(range(6 - shift))
    assert np.flatnonzero(areas[1]).tolist() == list(range(10 - shift, 14))


def test_a_prompt_or_a_rest_may_be_empty():
    assert region_rows(0, slice(0, 4), 4, 0).sum(1).tolist() == [0, 4, 0]
    assert region_rows(0, slice(0, 4), 4, 1).sum(1).tolist() == [0, 4, 0]
    assert window_kinds(region_rows(0, slice(0, 4), 4, 0), slice(0, 4), "reuse") == ("full",) * 3


def test_a_window_covers_regions_whole_or_in_part():
    areas = region_rows(6, slice(10, 14), 22, 0)
    assert window_kinds(areas, slice(10, 14), "frozen") == ("frozen", "full", "frozen")
    assert window_kinds(areas, slice(10, 22), "reuse") == ("reuse", "full", "partial")
    assert window_kinds(areas, slice(5, 13), "reuse") == ("partial", "partial", "partial")


def test_an_interval_refreshes_if_a_later_step_is_due():
    for step, interval, left in product(range(8), (1, 2, 3, 7), range(8)):
        due = [later for later in range(step + 1, step + left + 1) if later % interval == 0]
        assert refreshes_within(step, interval, left) == bool(due)
        assert reuse_kind(bool(due)) == ("reuse" if due else "frozen")
    assert not refreshes_within(5, None, 9)


def told(bits, areas, step, region):
    """The kind of one region, written out."""
    inside = bits[step][..., areas[step, region]]
    if inside.all():
        return "full"
    if inside.any():
        return "partial"
    return "reuse" if bits[step + 1 :][..., areas[step, region]].any() else "frozen"


@pytest.mark.parametrize("seed", range(4))
def test_recomputed_kinds_equal_a_cell_by_cell_reference(seed):
    rng = np.random.default_rng(seed)
    bits = np.zeros((6, 3, 4, 22), bool)
    for step in range(6):
        bits[step, ..., slice(*np.sort(rng.choice(23, 2, False)))] = True
        bits[step, rng.integers(3), rng.integers(4), rng.integers(22)] ^= True
    blocks = [slice(6 + 4 * b, 10 + 4 * b) for b in (0, 0, 1, 1, 2, 3)]
    areas = np.array([region_rows(6, block, 22, seed % 2) for block in blocks])
    found = recomputed_kinds(np.packbits(bits, axis=-1), areas.__getitem__, 22)
    for step in range(6):
        assert [KINDS[k] for k in found[step]] == [told(bits, areas, step, r) for r in range(3)]
    whole = np.full((6, 3, 4, 3), 255, np.uint8)
    assert (recomputed_kinds(whole, areas.__getitem__, 22) == 0).all()
