"""Slices reduced to the pixels of a screen: the largest, the mean or the share of each cell."""

import numpy as np
import pytest

from engine.core.drift_codes import NOT_EVALUATED, decode, encode
from engine.core.events import QUANTITIES
from inspector.slices import reduction
from inspector.views.queries import NEVER
from tests.inspector.slice_parts import (
    POSITIONS,
    STEPS,
    cut,
    whole_trace,
)

V = QUANTITIES.index("v")


@pytest.fixture(scope="module")
def trace():
    return whole_trace()


@pytest.fixture(scope="module")
def held(trace):
    return trace.arrays()


def blocks(array, by):
    """Each cell's values, cell by cell."""
    for top in range(0, array.shape[0], by[0]):
        for left in range(0, array.shape[1], by[1]):
            yield array[top : top + by[0], left : left + by[1]]


def sparse_codes():
    """Codes of which most are missing, so that some cells have none."""
    rng = np.random.default_rng(3)
    codes = rng.integers(0, 255, (23, 150), np.uint8)
    return np.where(rng.random(codes.shape) < 0.8, np.uint8(NOT_EVALUATED), codes)


@pytest.mark.parametrize("by", [(1, 1), (2, 3), (5, 70), (23, 150), (40, 200)])
@pytest.mark.parametrize(
    ("fold", "best"), [(reduction.by_maximum, np.max), (reduction.by_minimum, np.min)]
)
def test_a_reduced_cell_has_the_largest_or_the_smallest_known_code(by, fold, best):
    codes = sparse_codes()
    found = fold(codes, by)
    want = [
        best(known) if (known := cell[cell != NOT_EVALUATED]).size else NOT_EVALUATED
        for cell in blocks(codes, by)
    ]
    assert found.ravel().tolist() == want
    assert found.dtype == np.uint8


@pytest.mark.parametrize("by", [(1, 1), (2, 3), (5, 70), (40, 200)])
def test_a_reduced_cell_has_the_mean_of_the_known_drifts(by):
    codes = sparse_codes()
    found = reduction.by_mean(codes, by)
    means = [decode(known).mean() if (known := cell[cell != NOT_EVALUATED]).size else np.nan
             for cell in blocks(codes, by)]  # fmt: skip
    assert found.ravel().tolist() == encode(means).tolist()


@pytest.mark.parametrize("by", [(1, 1), (2, 3), (5, 70)])
def test_a_reduced_cell_has_the_share_of_its_flags(by):
    flags = np.random.default_rng(4).random((23, 150)) < 0.3
    found = reduction.by_share(flags, by)
    assert found.ravel().tolist() == [round(254 * cell.mean()) for cell in blocks(flags, by)]


def test_no_data_of_two_bytes_stays_only_where_all_is():
    ages = np.array([[NEVER, 3, NEVER, NEVER]], np.uint16)
    assert reduction.by_maximum(ages, (1, 2)).tolist() == [[3, NEVER]]


@pytest.mark.parametrize("shape", [(1024, 3072), (4096, 16384), (3, 10_000_000), (0, 5)])
def test_cells_fit_into_a_message_without_asking(shape):
    rows, columns = reduction.factors(shape, (4096, 4096), 2)
    assert -(-shape[0] // rows) * -(-shape[1] // columns) * 2 <= reduction.MAX_BYTES


def test_a_window_is_cut_before_it_is_reduced(trace, held):
    asked = {"step_from": 5, "step_to": 25, "position_from": 11, "position_to": 91}
    found, facts = cut(trace, "drift", "map", quantity="v", layer=0, width=20, height=7, **asked)
    window = held["drift"][5:25, 0, V, 11:91]
    assert np.array_equal(found["cells"], reduction.by_maximum(window, (3, 4)))
    assert facts["rows"] == {"name": "steps", "from": 5, "to": 25, "factor": 3}
    assert facts["columns"] == {"name": "positions", "from": 11, "to": 91, "factor": 4}
    assert (facts["by"], facts["no_data"]) == ("maximum", NOT_EVALUATED)


def test_a_map_that_fits_the_screen_is_not_reduced(trace):
    facts = cut(trace, "drift", quantity="v", layer=0, width=POSITIONS, height=STEPS)[1]
    assert facts["by"] == "none"
    assert facts["rows"]["factor"] == facts["columns"]["factor"] == 1
