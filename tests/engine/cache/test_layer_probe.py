"""LayerProbe: the drift of a compared quantity is that of its values, in either form."""

import pytest
import torch

from engine.cache.layer_probe import LayerProbe
from engine.cache.store import ActivationStore, Site
from engine.core.rows import ALL
from engine.models.ops import drift, unit_rows
from tests.support.micro import make_model

LENGTH, WIDTH, ROWS = 9, 6, slice(2, 9)


def probe_and_values(dtype):
    """A probe whose store keeps a compared quantity, and three values of it, [2, 7, WIDTH] each."""
    model, noise = make_model(1), torch.Generator().manual_seed(1)
    site = (Site("compared", WIDTH, ROWS.start),)
    store = ActivationStore(model.info, site, 2, LENGTH, dtype, model.device)
    probe = LayerProbe(model, store, 0, torch.zeros(2, LENGTH, 32, dtype=dtype), ALL, LENGTH)
    shape = 2, LENGTH - ROWS.start, WIDTH
    return probe, [torch.randn(shape, generator=noise).to(dtype) for _ in range(3)]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_the_drift_of_a_compared_quantity_is_that_of_its_values(dtype):
    probe, (first, second, third) = probe_and_values(dtype)
    probe.keep("compared", probe.compared(first), ROWS)
    for new, old in ((second, first), (third, second)):
        found = probe.replace_compared("compared", probe.compared(new), ROWS)
        assert torch.equal(found, drift(new, old))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_unit_vectors_are_kept_unless_the_number_format_rounds_them(dtype):
    probe, (first, *_) = probe_and_values(dtype)
    expected = first if dtype == torch.bfloat16 else unit_rows(first)
    assert torch.equal(probe.compared(first), expected)
