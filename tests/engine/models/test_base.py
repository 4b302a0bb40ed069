"""ModelAdapter.project: any rows of a canvas give the same values at their global positions."""

import gc
from weakref import ref

import pytest
import torch

from engine.cache.layer_probe import LayerPlan, LayerProbe
from engine.cache.store import ActivationStore
from engine.core.rows import ALL
from tests.support.micro import ATOL, FAMILIES, make_model, model_of
from tests.support.reference import reference_rotation

LENGTH = 19


@pytest.fixture(params=FAMILIES)
def family(request):
    return request.param


def probe_of(model, rows=ALL, batch=2, layer=1):
    generator = torch.Generator().manual_seed(4)
    h = torch.randn(batch, LENGTH, 32, dtype=torch.float64, generator=generator)
    if isinstance(rows, slice):
        h = h[:, rows]
    elif rows is not ALL:
        h = h.gather(1, rows[..., None].expand(-1, -1, 32))
    store = ActivationStore(model.info, (), batch, LENGTH, model.dtype, model.device)
    return LayerProbe(model, store, layer, h, rows, LENGTH)


INDEX = torch.tensor([[2, 3, 11, 17], [0, 5, 6, 18]])


def picked(tensor, rows):
    if isinstance(rows, slice):
        return tensor[:, rows]
    return torch.stack([tensor[i, rows[i]] for i in range(len(rows))])


@pytest.mark.parametrize("rows", [slice(5, 11), INDEX], ids=["slice", "index"])
@pytest.mark.parametrize("name", "qkv")
def test_a_window_projects_to_global_positions(model, name, rows):
    whole, window = probe_of(model).project(name), probe_of(model, rows).project(name)
    torch.testing.assert_close(window, picked(whole, rows), atol=ATOL, rtol=0)


@pytest.mark.parametrize("name", "qk")
def test_block_local_positions_would_differ(model, name):
    whole = probe_of(model).project(name)
    x = probe_of(model).normed[:, 5:11]
    (local,) = model.project(1, name, x, slice(0, 6), LENGTH)
    assert (local - whole[:, 5:11]).abs().max() > 1e-3


@pytest.mark.parametrize("rows", [slice(7, 9), INDEX[:, 1:3]], ids=["slice", "index"])
def test_rows_of_a_probe_are_reused_not_recomputed(model, rows):
    probe = probe_of(model)
    alone = probe.project("v", rows)
    probe.project_all()
    calls = []
    probe.adapter = _CountingAdapter(model, calls)
    torch.testing.assert_close(probe.project("v", rows), alone, atol=ATOL, rtol=0)
    assert calls == []
    assert probe.project("q", heads=slice(0, 1)).shape == (2, LENGTH, 1, 8)
    assert calls == ["q"]


class _CountingAdapter:
    def __init__(self, model, calls):
        self._model, self._calls, self.kernels = model, calls, model.kernels

    def project(self, layer, names, *rest):
        self._calls.append(names)
        return self._model.project(layer, names, *rest)


@pytest.mark.parametrize("name", "qk")
def test_one_head_equals_that_head_of_the_projection(model, name):
    whole = probe_of(model).project(name)
    head = probe_of(model).project(name, slice(3, 8), heads=slice(1, 2))
    torch.testing.assert_close(head, whole[:, 3:8, 1:2], atol=ATOL, rtol=0)


def test_fused_projection_equals_the_single_ones(model):
    fused = probe_of(model).project_all()
    for name, part in zip("qkv", fused, strict=True):
        torch.testing.assert_close(part, probe_of(model).project(name), atol=ATOL, rtol=0)


def test_keys_rotated_before_or_after_storing_are_equal(model):
    info, probe = model.info, probe_of(model)
    weight, bias = model.block(1).qkv.weight, model.block(1).qkv.bias
    rows = slice(info.d_model, info.d_model + info.d_kv)
    raw = probe.normed @ weight[rows].T + (0 if bias is None else bias[rows])
    raw = raw.unflatten(-1, (-1, info.head_dim)).transpose(1, 2)
    after = reference_rotation(raw).transpose(1, 2)
    torch.testing.assert_close(probe.project("k"), after, atol=ATOL, rtol=0)
    assert (probe.project("k") - raw.transpose(1, 2)).abs().max() > 1e-3


def test_rotation_keeps_lengths_and_relative_angles():
    model = model_of("mha")
    q, k = probe_of(model).project("q"), probe_of(model).project("k")
    x = probe_of(model).normed
    moved = [model.project(1, n, x[:, :10], slice(9, 19), LENGTH)[0] for n in "qk"]
    near = torch.einsum("bnhd,bmhd->bhnm", q[:, :10], k[:, :10])
    far = torch.einsum("bnhd,bmhd->bhnm", *moved)
    torch.testing.assert_close(near, far, atol=ATOL, rtol=0)


def test_attention_computed_for_a_policy_is_reused(model):
    probe = probe_of(model)
    first = probe.attn(LayerPlan())
    assert probe.attn(LayerPlan(ffn=slice(3, 5))) is first
    fewer = probe.attn(LayerPlan(attn=slice(3, 5)))
    torch.testing.assert_close(fewer, first[:, 3:5], atol=ATOL, rtol=0)
    assert fewer is not first


def test_an_adapter_and_its_rotary_tables_are_freed_without_a_garbage_collection():
    model = make_model()
    rotary = model.rotary(LENGTH)
    rotary.angles(slice(0, 4))
    held = [ref(one) for one in (model, model.block(0).qkv.weight, rotary, rotary.table)]
    gc.disable()
    try:
        del model, rotary
        assert [one() for one in held] == [None] * len(held)
    finally:
        gc.enable()
