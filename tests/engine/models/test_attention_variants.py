"""Variants of attention: the width of a head, normed queries and keys, partly rotated heads."""

from dataclasses import replace

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from engine.cache.base import StepPlan
from engine.cache.forward import forward
from engine.cache.methods.none import NoCache
from engine.cache.store import ActivationStore, Site
from engine.core.rows import ALL
from engine.estimate.shape_model import ShapeAdapter
from engine.models.flops import FlopCounter
from engine.models.loading.layout import LLAMA_QK_NORM
from engine.models.loading.memory_estimate import parameters
from tests.support.micro import ATOL, make_info, make_model, make_spec, run
from tests.support.reference import reference_logits
from tests.support.torch_flops import TorchFlops

WIDE = {"n_heads": 4, "kv": 2, "head_dim": 12}  # 4 heads of 12 on a stream of 32
VARIANTS = {
    "wide-heads": WIDE,
    "qk-norm": {"kv": 2, "qk_norm": True},
    "half-rotary": {"rotary_dim": 4},
    "all": {**WIDE, "qk_norm": True, "rotary_dim": 6, "shift": 1},
}


@pytest.fixture(params=list(VARIANTS))
def variant(request):
    return make_model(seed=3, **VARIANTS[request.param])


def logits(model, canvas, counter=None):
    store = ActivationStore(model.info, (), *canvas.shape, model.dtype, model.device)
    return forward(model, store, NoCache(), StepPlan(), canvas, None, ALL, counter)


def canvas(batch=2, length=11):
    return torch.randint(3, 39, (batch, length), generator=torch.Generator().manual_seed(1))


def test_the_forward_equals_a_reference(variant):
    ids = canvas()
    found, expected = logits(variant, ids), reference_logits(variant, ids)
    torch.testing.assert_close(found, expected, atol=ATOL, rtol=0)


def test_norms_and_the_rotated_part_change_the_logits():
    model, ids = make_model(seed=3, **VARIANTS["all"]), canvas()
    before = logits(model, ids)
    turned = make_model(seed=3, **VARIANTS["all"] | {"rotary_dim": 12})  # the same weights
    assert (logits(turned, ids) - before).abs().max() > 1e-3
    model.info = replace(model.info, qk_norm=False)
    assert (logits(model, ids) - before).abs().max() > 1e-3


@pytest.mark.parametrize("qk_norm", [True, False])
def test_the_scale_of_a_head_matters_only_without_norms(qk_norm):
    model, ids = make_model(seed=3, kv=2, qk_norm=qk_norm, norm_eps=1e-14), canvas()
    before, width = logits(model, ids), model.info.head_dim
    for head, factor in ((1, 3.0), (4, 0.25)):  # the second query head and the first key head
        model.block(1).qkv.weight[head * width : (head + 1) * width] *= factor
    moved = (logits(model, ids) - before).abs().max()
    assert moved < 1e-9 if qk_norm else moved > 1e-3


def test_values_are_not_normed():
    model, ids = make_model(seed=3, kv=2, qk_norm=True), canvas()
    before, width = logits(model, ids), model.info.head_dim
    model.block(1).qkv.weight[6 * width : 7 * width] *= 3
    assert (logits(model, ids) - before).abs().max() > 1e-3


def test_flops_parameters_and_shapes_follow_the_width_of_a_head(variant):
    ids, counter = canvas(), FlopCounter(variant.info)
    with sdpa_kernel(SDPBackend.MATH), TorchFlops() as mode:
        logits(variant, ids, counter)
    assert counter.parts().sum() == mode.total
    info = variant.info
    assert parameters(info) == sum(p.numel() for p in variant.parameters())
    store = ActivationStore(info, (Site("k"),), 2, 11, variant.dtype, variant.device)
    assert store.nbytes() == 2 * 11 * info.n_kv_heads * info.head_dim * 8 * info.layers
    shaped = ShapeAdapter(info, torch.float32)
    assert logits(shaped, ids.to("meta")).shape == (2, 11, info.vocab_size)


def test_the_value_weight_is_that_of_the_values():
    model = make_model(seed=3, **VARIANTS["all"])
    x = torch.randn(1, 5, 32, dtype=torch.float64)
    weight, bias = model.value_weight(1)
    (values,) = model.project(1, "v", x, slice(0, 5), 5)
    torch.testing.assert_close(values.flatten(2), x @ weight.T + bias, atol=ATOL, rtol=0)


def test_the_layout_names_the_norms_of_heads():
    info = make_info(**WIDE, qk_norm=True)
    expected = LLAMA_QK_NORM.expected(info, info.vocab_size)
    assert expected["model.layers.1.self_attn.q_norm.weight"] == (12,)
    assert expected["model.layers.1.self_attn.q_proj.weight"] == (48, 32)
    assert expected["model.layers.1.self_attn.o_proj.weight"] == (32, 48)
    sizes = sum(torch.Size(shape).numel() for shape in expected.values())
    assert sizes == parameters(info)


@pytest.mark.parametrize("cache", ["dual", "dllm_cache", "spa_cache", "dare_o", "d2_cache"])
def test_caches_run_with_wide_normed_heads(cache):
    knobs = {"spa_cache": {"spa_cache.rank": 4}}.get(cache, {})
    model = make_model(seed=3, **VARIANTS["all"])
    done = run(model, make_spec(cache=cache, knobs=knobs))
    assert not done.state.masked.any()
