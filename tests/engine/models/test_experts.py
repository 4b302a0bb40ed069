"""Routers and experts: invariants of both routers, in float64, with negative controls."""

from dataclasses import replace

import pytest
import torch

from engine.generate.loop import Denoiser, denoise
from engine.models.feed_forward import MixtureOfExperts, Routing
from engine.models.loading.memory_estimate import (
    active_parameters,
    block_parameters,
    largest_layer_bytes,
    parameters,
)
from tests.engine.cache.test_compositions import CACHES
from tests.engine.cache.test_forward import canvas_of, full
from tests.engine.models.test_flops import KNOBS
from tests.support.micro import (
    ATOL,
    SIGMOID_EXPERTS,
    SOFTMAX_EXPERTS,
    TWO_BLOCKS,
    fill,
    make_model,
    make_prompts,
    make_spec,
    micro_job,
    run,
    tapped,
    widest_gap,
)
from tests.support.reference import reference_experts, reference_logits
from tests.support.torch_flops import counted

ROUTERS = {"softmax": SOFTMAX_EXPERTS, "sigmoid": SIGMOID_EXPERTS}
WIDTH = 32


@pytest.fixture(params=ROUTERS)
def experts(request):
    return ROUTERS[request.param]


def mixture(experts, seed=1) -> MixtureOfExperts:
    return fill(MixtureOfExperts(WIDTH, experts).double().requires_grad_(False), seed)


def rows(count=40, seed=2):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(1, count, WIDTH, dtype=torch.float64, generator=generator)


def model_with(experts, **changes):
    return make_model(seed=5, experts=experts, qk_norm=True, **changes)


def test_a_forward_equals_the_reference(experts):
    network, x = mixture(experts), rows()
    torch.testing.assert_close(network(x), reference_experts(network, x), atol=1e-12, rtol=0)
    model, canvas = model_with(experts), canvas_of(3)
    expected = reference_logits(model, canvas)
    torch.testing.assert_close(full(model, canvas), expected, atol=ATOL, rtol=0)


def test_weights_of_a_row_sum_to_less_than_one_or_to_the_scale():
    x = rows()[0]
    soft = mixture(SOFTMAX_EXPERTS).router(x).weights.sum(-1)
    assert (soft < 0.99).all()
    scaled = mixture(SIGMOID_EXPERTS).router(x).weights.sum(-1)
    torch.testing.assert_close(scaled, torch.full_like(scaled, 2.5), atol=1e-12, rtol=0)


def test_all_experts_at_once_are_the_dense_mixture():
    network, x = mixture(replace(SOFTMAX_EXPERTS, active=12)), rows()
    weights = (x @ network.router.weight.T).softmax(-1)
    gate, up = torch.einsum("bnd,ehd->bneh", x, network.gate_up.weight).chunk(2, -1)
    hidden = gate * gate.sigmoid() * up
    dense = torch.einsum("bneh,edh,bne->bnd", hidden, network.down.weight, weights)
    torch.testing.assert_close(network(x), dense, atol=1e-12, rtol=0)
    fewer = mixture(replace(SOFTMAX_EXPERTS, active=11))
    assert (fewer(x) - dense).abs().max() > 1e-6


def test_experts_in_another_order_give_the_same_result(experts):
    network, x = mixture(experts), rows()
    before, size = network(x), experts.count // experts.groups
    # Whole groups change places, and so do the experts of a group.
    order = torch.arange(experts.count).view(experts.groups, size).flip(0, 1).flatten()
    for part in (network.gate_up.weight, network.down.weight):
        part.copy_(part[order].clone())
    assert (network(x) - before).abs().max() > 1e-3  # the router still has the old order
    for part in network.router.parameters():
        part.copy_(part[order].clone())
    torch.testing.assert_close(network(x), before, atol=1e-12, rtol=0)


def test_a_row_does_not_depend_on_the_other_rows(experts):
    network, x = mixture(experts), rows()
    whole = network(x)
    for chosen in (slice(0, 1), slice(7, 19), slice(39, 40)):
        torch.testing.assert_close(network(x[:, chosen]), whole[:, chosen], atol=1e-12, rtol=0)
    mixed = torch.cat((x[:, 5:9], rows(seed=9)[:, :30]), 1)
    torch.testing.assert_close(network(mixed)[:, :4], whole[:, 5:9], atol=1e-12, rtol=0)
    assert (network(mixed)[:, 4:8] - whole[:, 4:8]).abs().max() > 1e-3


def test_the_chosen_experts_are_told_for_each_row(experts):
    network, x = mixture(experts), rows().view(2, 20, WIDTH)
    out, ids = network.forward_with_experts(x)
    assert torch.equal(out, network(x))
    assert ids.shape == (2, 20, experts.active)
    assert torch.equal(ids.flatten(0, 1), network.router(x.flatten(0, 1)).ids)
    assert all(len(set(one)) == experts.active for one in ids.flatten(0, 1).tolist())
    empty, none = network.forward_with_experts(x[:, :0])
    assert empty.shape == (2, 0, WIDTH)
    assert none.shape == (2, 0, experts.active)


def without_bias(network) -> Routing:
    bias = network.router.bias.clone()
    network.router.bias.zero_()
    found = network.router(rows()[0])
    network.router.bias.copy_(bias)
    return found


def test_a_bias_changes_the_choice_but_no_ratio_of_weights():
    network, x = mixture(SIGMOID_EXPERTS), rows()[0]
    network.router.bias.mul_(3)
    biased, plain = network.router(x), without_bias(network)
    chosen, unbiased = biased.ids.sort(-1).values, plain.ids.sort(-1).values
    assert (chosen != unbiased).any(-1).sum() > 5
    scores = (x @ network.router.weight.T).sigmoid()
    kept = scores.gather(-1, biased.ids)
    ratios = biased.weights / kept
    torch.testing.assert_close(ratios, ratios[:, :1].expand_as(ratios), atol=1e-12, rtol=1e-12)
    with_bias = kept + network.router.bias[biased.ids]
    spread = biased.weights / with_bias
    assert (spread - spread[:, :1]).abs().max() > 1e-3


def test_the_chosen_experts_lie_in_few_groups():
    x, size = rows(200)[0], 3
    few = mixture(SIGMOID_EXPERTS).router(x).ids // size
    assert max(len(set(row)) for row in few.tolist()) == SIGMOID_EXPERTS.active_groups
    free = mixture(replace(SIGMOID_EXPERTS, active_groups=4)).router(x).ids // size
    assert max(len(set(row)) for row in free.tolist()) == 3


def test_experts_of_closed_groups_are_not_chosen_when_all_scores_are_negative():
    network = mixture(SIGMOID_EXPERTS)
    network.router.bias.fill_(-5.0)
    network.router.bias[:6].add_(1.0)  # the first two groups are the best
    assert (network.router(rows()[0]).ids < 6).all()


def test_parameters_are_those_of_the_adapter(experts):
    model = model_with(experts)
    info = model.info
    assert parameters(info) == sum(p.numel() for p in model.parameters())
    blocks = [sum(p.numel() for p in block.parameters()) for block in model.blocks]
    assert blocks == [block_parameters(info, layer) for layer in range(info.layers)]
    assert largest_layer_bytes(info, torch.float64) == 8 * max(blocks)
    idle = (experts.count - experts.active) * 3 * WIDTH * experts.ffn
    layers = info.layers - experts.dense_layers
    tables = info.vocab_size * info.d_model
    assert active_parameters(info) == parameters(info) - layers * idle - tables


def test_first_layers_are_dense_where_the_config_says_so():
    model = model_with(SIGMOID_EXPERTS)
    kinds = [type(block.feed_forward).__name__ for block in model.blocks]
    assert kinds == ["DenseFeedForward", "MixtureOfExperts", "MixtureOfExperts"]
    h = rows(5)
    assert model.mlp_with_experts(0, h)[1] is None
    assert model.mlp_with_experts(1, h)[1].shape == (1, 5, 3)


@pytest.mark.parametrize("cache", ["none", "dual", "dllm_cache", "d2_cache", "prefix+dare_o"])
def test_flops_equal_those_that_torch_counts(experts, cache):
    spec = make_spec(cache=cache, knobs=KNOBS.get(cache, {}))
    job = micro_job(model_with(experts), spec, make_prompts(6, 9), eager=True)
    assert len(list(counted(denoise(Denoiser(job)), 5))) == 5


@pytest.mark.parametrize("cache", CACHES)
def test_every_cache_decodes_with_experts(cache):
    spec = make_spec(cache=cache, **TWO_BLOCKS)
    ran = run(model_with(SOFTMAX_EXPERTS), spec, make_prompts(7))
    assert not ran.state.masked.any()


EXACT = {
    "dual": {"dual.refresh_interval": 1},
    "dllm_cache": {"dllm_cache.prompt_interval": 1, "dllm_cache.response_interval": 1},
    "spa_cache": {"spa_cache.refresh_interval": 1},
    "dkv_cache": {"dkv_cache.reload_interval": 1},
}


@pytest.mark.parametrize("cache", EXACT)
def test_a_cache_that_refreshes_every_step_equals_none(experts, cache):
    model = model_with(experts)
    _, plain = tapped(model, make_spec(**TWO_BLOCKS))
    _, exact = tapped(model, make_spec(cache=cache, knobs=EXACT[cache], **TWO_BLOCKS))
    assert widest_gap(plain, exact) < ATOL
    _, stale = tapped(model, make_spec(cache=cache, **TWO_BLOCKS))
    assert widest_gap(plain, stale) > 1e-6


def test_experts_are_not_captured(experts):
    assert micro_job(model_with(experts), make_spec()).capturer is None
    assert micro_job(make_model(), make_spec()).capturer is not None


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_stays_near_float64(experts, dtype):
    network, x = mixture(experts), rows()
    expected = network(x)
    found = network.to(dtype)(x.to(dtype))
    assert found.dtype == dtype
    error = (found.double() - expected).norm(dim=-1) / expected.norm(dim=-1)
    assert error.median() < 0.03  # a row whose last expert changes is off by more
