"""Row sets, and the activation store that they index."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.cache.store import ActivationStore, Site
from engine.core.rows import (
    ALL,
    count,
    from_device_mask,
    from_mask,
    is_empty,
    local_rows,
    put,
    same_rows,
    take,
    to_mask,
    unrepeated,
    upload_mask,
)
from tests.support.micro import make_info

CPU = torch.device("cpu")
INDEX = torch.tensor([[1, 4, 5], [0, 2, 7]])
SETS = [ALL, slice(2, 6), INDEX]


def values(*shape):
    return torch.arange(np.prod(shape), dtype=torch.float64).view(shape)


@pytest.mark.parametrize("dim", [1, 2])
def test_one_sequence_is_read_and_written_like_the_first_of_two(dim):
    x = values(2, 8, 8, 5)
    rows = torch.tensor([[1, 4, 4]])
    both = torch.cat((rows, rows))
    assert torch.equal(take(x[:1], rows, dim), take(x, both, dim)[:1])
    one, two = torch.zeros(1, 8, 8, 5, dtype=torch.float64), torch.zeros_like(x)
    put(one, rows, take(x[:1], rows, dim), dim)
    put(two, both, take(x, both, dim), dim)
    assert torch.equal(one, two[:1])
    assert one.any()


def test_repeated_rows_count_once():
    like = torch.zeros(2, 3)
    rows = torch.tensor([[1, 4, 4], [2, 3, 7]])
    assert unrepeated(rows, like).tolist() == [[1, 1, 0], [1, 1, 1]]
    assert unrepeated(slice(2, 5), like).tolist() == [[1, 1, 1], [1, 1, 1]]


@pytest.mark.parametrize("dim", [1, 2])
@pytest.mark.parametrize("rows", SETS)
def test_take_and_put_are_inverse(rows, dim):
    shape = (2, 8, 3) if dim == 1 else (2, 3, 8, 5)
    x, y = values(*shape), torch.zeros(shape, dtype=torch.float64)
    put(y, rows, take(x, rows, dim), dim)
    mask = to_mask(rows, 2, 8).view(2, *[1] * (dim - 1), 8, *[1] * (len(shape) - dim - 1))
    assert torch.equal(y, torch.where(mask, x, 0))


def test_slices_are_views():
    x = values(2, 8)
    assert take(x, ALL) is x
    assert take(x, slice(2, 6)).data_ptr() == x[:, 2:].data_ptr()


@pytest.mark.parametrize(("rows", "n"), [(ALL, 8), (slice(2, 6), 4), (INDEX, 3), (slice(0, 0), 0)])
def test_counts(rows, n):
    assert count(rows, 8) == n
    assert is_empty(rows) == (n == 0)


ACTIVE = [ALL, slice(1, 8), torch.tensor([[0, 1, 4, 5, 6], [0, 2, 3, 7, 7]])]


@pytest.mark.parametrize("active", ACTIVE)
@pytest.mark.parametrize("rows", [ALL, slice(4, 6), torch.tensor([[4, 5], [2, 7]])])
def test_places_inside_an_active_set(active, rows):
    if isinstance(active, torch.Tensor) and isinstance(rows, slice):
        active, rows = active[:1], slice(4, 7)
    x = values(2, 8)[: len(active) if isinstance(active, torch.Tensor) else 2]
    if rows is ALL:
        assert local_rows(active, rows) is ALL
        return
    assert torch.equal(take(take(x, active), local_rows(active, rows)), take(x, rows))


def test_an_active_set_is_all_of_itself():
    for rows in SETS:
        assert local_rows(rows, rows) is ALL
    assert local_rows(slice(2, 6), slice(2, 6)) is ALL
    assert same_rows(slice(1, 2), slice(1, 2))
    assert not same_rows(slice(1, 2), slice(1, 3))


@given(st.lists(st.lists(st.booleans(), min_size=6, max_size=6), min_size=1, max_size=4))
def test_rows_of_a_mask_are_listed_in_order(mask):
    mask = np.array(mask)
    rows, real = from_mask(mask)
    for i, row in enumerate(mask):
        assert rows[i, real[i]].tolist() == np.flatnonzero(row).tolist()
        assert (np.diff(rows[i]) >= 0).all()
    assert rows.shape[1] == max(mask.sum(1).max(), 1)
    there, known = from_device_mask(torch.from_numpy(mask), mask.sum(1))
    assert torch.equal(there, upload_mask(mask, CPU))
    assert np.array_equal(there.numpy(), rows)
    assert np.array_equal(known, real)


def store(*sites):
    return ActivationStore(make_info(kv=2), sites, 2, 8, torch.float64, CPU)


def test_keys_are_stored_in_the_layout_of_attention():
    kept = store(Site("k"), Site("attn"), Site("own", 3))
    kept.write(0, "k", ALL, values(2, 8, 2, 8))
    kept.write(0, "attn", ALL, values(2, 8, 32))
    kept.write(0, "own", ALL, values(2, 8, 3))
    assert kept.read(0, "k").shape == (2, 2, 8, 8)
    assert torch.equal(kept.read(0, "k"), values(2, 8, 2, 8).transpose(1, 2))
    assert torch.equal(kept.read(0, "own", INDEX), take(values(2, 8, 3), INDEX))
    assert not kept.written(1, "k")
    assert not kept.keeps("v")


@pytest.mark.parametrize("rows", [slice(2, 6), INDEX, slice(0, 7)])
def test_a_first_write_must_cover_every_row(rows):
    with pytest.raises(AssertionError, match="first write of layer 1 must cover every row"):
        store(Site("attn")).write(1, "attn", rows, values(2, count(rows, 8), 32))


@pytest.mark.parametrize("rows", [slice(2, 6), INDEX])
def test_a_write_leaves_the_other_rows_alone(rows):
    kept = store(Site("v"))
    kept.write(0, "v", ALL, values(2, 8, 2, 8))
    before = kept.read(0, "v").clone()
    kept.write(0, "v", rows, -1 - values(2, count(rows, 8), 2, 8))
    mask = to_mask(rows, 2, 8)
    changed = (kept.read(0, "v") != before).any(-1).any(1)
    assert torch.equal(changed, mask)


def test_a_site_may_start_after_the_prompt():
    kept = store(Site("late", 3, start=5))
    kept.write(0, "late", slice(5, 8), values(2, 3, 3))
    assert torch.equal(kept.read(0, "late", slice(6, 8)), values(2, 3, 3)[:, 1:])
    kept.write(0, "late", torch.tensor([[7], [5]]), torch.full((2, 1, 3), -1.0).double())
    assert (kept.read(0, "late")[:, :, 0] == -1).nonzero().tolist() == [[0, 2], [1, 0]]


def test_a_read_before_the_first_write_is_refused():
    with pytest.raises(AssertionError, match="never written"):
        store(Site("k")).read(0, "k")


def test_bytes_are_those_of_the_tensors():
    assert store(Site("k"), Site("ffn"), Site("own", 3, start=4)).nbytes() == 8 * 3 * 2 * (
        2 * 8 * 8 + 8 * 32 + 4 * 3
    )
